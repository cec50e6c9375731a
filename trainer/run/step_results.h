// What becomes of the results of a run's steps: where training is, checks and records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "comm/communicator.h"
#include "trainer/run/checks.h"
#include "trainer/run/reporter.h"
#include "trainer/run/run_parts.h"
#include "trainer/run/run_stop.h"
#include "trainer/step/step_result.h"

namespace trireme::train {

class StepResults {
 public:
  // `spike_deviations`: see LossSpikes. Everything outlives it.
  StepResults(double spike_deviations, comm::Communicator& communicator, RunStop& stop,
              RunParts& parts)
      : communicator_(communicator), stop_(stop), parts_(parts), loss_spikes_(spike_deviations) {}

  // Before the step is run.
  void launched(const LaunchedStep& launched) { launched_.push_back(launched); }
  // Steps are done in the order in which they were launched, a GPU's one step later. All ranks call
  // it together. Throws AgreedError where the run ends for loss or gradients that are not finite.
  void done(const StepResult& result);

  // Of the latest result; see StepResult.
  float gradient_scale() const { return gradient_scale_; }

 private:
  void count_left_out(const LaunchedStep& launched, const StepResult& result);
  void count_loss(int64_t step, const LaunchedStep& launched, const StepResult& result);
  void not_finite(int64_t step, const LaunchedStep& launched, const Checks::NotFinite& found);

  static constexpr int kReasonsAskedFor = 10;  // which takes time

  comm::Communicator& communicator_;
  RunStop& stop_;
  RunParts& parts_;
  LossSpikes loss_spikes_;
  std::deque<LaunchedStep> launched_;
  float gradient_scale_ = 1;
  int reasons_asked_for_ = 0;
  size_t reasons_told_ = 0;
};

}  // namespace trireme::train
