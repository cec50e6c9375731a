// Processes the results of steps: updates the state of training, runs the checks, writes records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "comm/communicator.h"
#include "trainer/run/checks.h"
#include "trainer/run/reporter.h"
#include "trainer/run/run_parts.h"
#include "trainer/run/run_stop.h"
#include "trainer/step/step_result.h"

namespace trireme::train {

class StepResults {
 public:
  // See LossSpikes for `spike_stddevs`. All arguments must outlive this object.
  StepResults(double spike_stddevs, comm::Communicator& communicator, RunStop& stop,
              RunParts& parts)
      : communicator_(communicator), stop_(stop), parts_(parts), loss_spikes_(spike_stddevs) {}

  // Must be called before the step is run.
  void launched(const LaunchedStep& launched) { launched_.push_back(launched); }
  // Must be called with the result of each step, in the order in which they were launched. Throws
  // AgreedError if the run ends because the loss or a gradient is not finite, or because too
  // many samples were bad. Collective.
  void done(const StepResult& result);

  // Returns StepResult::gradient_scale of the latest result.
  float gradient_scale() const { return gradient_scale_; }

 private:
  void count_skipped_samples(const LaunchedStep& launched, const StepResult& result);
  void count_loss(int64_t step, const LaunchedStep& launched, const StepResult& result);
  void not_finite(int64_t step, const LaunchedStep& launched, const Checks::NotFinite& found);

  // Maximum number of steps whose reasons are gathered from all ranks, since gathering takes time.
  static constexpr int kMaxReasonQueries = 10;

  comm::Communicator& communicator_;
  RunStop& stop_;
  RunParts& parts_;
  LossSpikes loss_spikes_;
  std::deque<LaunchedStep> launched_;
  float gradient_scale_ = 1;
  int reason_queries_ = 0;
  size_t reasons_reported_ = 0;
  std::string first_reason_;  // why a sample was skipped
  int64_t bad_in_epoch_ = 0;  // samples of all ranks, in the epoch of the last step
  int64_t bad_in_a_row_ = 0;  // samples of the last steps, of which none had a good one
};

}  // namespace trireme::train
