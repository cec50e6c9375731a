// Logs what TensorBoard shows besides scalars: sample images at the start of a run, and histograms
// of parameters and gradients, which are copied between steps.
#pragma once

#include <chrono>
#include <cstdint>

#include "data/dataset.h"
#include "trainer/config/config.h"
#include "trainer/report/metrics.h"
#include "trainer/run/reporter.h"
#include "trainer/step/step.h"

namespace trireme::train {

class TensorBoardMedia {
 public:
  // Maximum fraction of the time that training may spend waiting for copies.
  static constexpr double kMaxTimeFraction = 0.003;

  // All arguments must outlive this object.
  TensorBoardMedia(const MetricsConfig& config, const data::Dataset& training, Step& step,
                   Reporter& reporter);

  // Logs the first metrics.images samples of the run's first batch, if they are images. `steps` is
  // the number of updates before the batch.
  void log_samples(const data::Batch& batch, int64_t steps);
  // Logs histograms after `epoch` epochs and `steps` updates, if they are due, would not take too
  // much time, and the previous ones have been written. No step may be in flight. `gradient_scale`
  // is that of the StepResult.
  void log_histograms(int64_t epoch, int64_t steps, float gradient_scale);

 private:
  using Clock = std::chrono::steady_clock;

  HistogramsRecord copy(float gradient_scale) const;

  const data::Dataset& training_;
  Step& step_;
  Reporter& reporter_;
  const int64_t every_epochs_;  // 0 disables histograms
  int64_t remaining_samples_;   // still to be logged
  Clock::time_point copied_at_;
  double copy_seconds_ = 0;  // duration of the last copy; 0 if there was none
};

}  // namespace trireme::train
