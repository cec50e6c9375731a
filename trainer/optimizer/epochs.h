// Converts between steps, epochs and positions in the training samples. An epoch is a pass over the
// training samples and does not depend on the batch size, so a run may be resumed with a different
// one.
#pragma once

#include <cstdint>

namespace trireme::train {

// The position of a run in its training samples.
struct SamplePosition {
  int64_t epoch = 0;   // completed epochs
  int64_t sample = 0;  // samples of the current epoch that have been used
};

class Epochs {
 public:
  // Describes epochs of `samples` samples in batches of `batch`; the last batch of an epoch may be
  // smaller. Requires positive numbers.
  Epochs(int64_t samples, int64_t batch) : samples_(samples), batch_(batch) {}

  // Returns the number of steps of an epoch.
  int64_t steps() const { return (samples_ + batch_ - 1) / batch_; }
  // Returns the position of a run after `steps` more steps.
  SamplePosition after(SamplePosition from, int64_t steps) const;
  // Returns the number of steps from `from` until `epochs` epochs are completed, or 0 if they
  // already are.
  int64_t steps_until(SamplePosition from, int64_t epochs) const;
  // Returns the number of steps with this batch size from the beginning of a run to the position.
  // May be fractional if earlier steps had a different batch size.
  double in_steps(SamplePosition position) const;
  // Returns the number of completed epochs, plus the fraction of the current one.
  double in_epochs(SamplePosition position) const;

 private:
  int64_t steps_left(SamplePosition from) const;  // in the current epoch

  int64_t samples_;
  int64_t batch_;
};

}  // namespace trireme::train
