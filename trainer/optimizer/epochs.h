// How the steps of a run lie in its epochs. An epoch is a pass over the training samples, whatever
// the batch, so that a run may be resumed with another one.
#pragma once

#include <cstdint>

namespace trireme::train {

// Samples that a run has seen.
struct SamplePosition {
  int64_t epoch = 0;   // epochs completed
  int64_t sample = 0;  // samples of the current epoch that were used
};

class Epochs {
 public:
  // Of `samples` each, in batches of `batch`, the last of an epoch shorter; both positive.
  Epochs(int64_t samples, int64_t batch) : samples_(samples), batch_(batch) {}

  // Of a whole epoch.
  int64_t steps() const { return (samples_ + batch_ - 1) / batch_; }
  // Where a run that is at `from` is after that many steps more.
  SamplePosition after(SamplePosition from, int64_t steps) const;
  // Steps from there until so many epochs are completed; 0 where they are.
  int64_t steps_until(SamplePosition from, int64_t epochs) const;
  // Steps of this batch that lead there from the beginning of a run: the number of its steps where
  // all had this batch, and not always a whole number where some had another.
  double in_steps(SamplePosition position) const;
  // Epochs completed, and the part of the current one.
  double in_epochs(SamplePosition position) const;

 private:
  int64_t steps_left(SamplePosition from) const;  // of the epoch

  int64_t samples_;
  int64_t batch_;
};

}  // namespace trireme::train
