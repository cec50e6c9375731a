// What TensorBoard shows of a run beside curves: samples at the start, and histograms of parameters
// and gradients, which are copied between steps.
#pragma once

#include <chrono>
#include <cstdint>

#include "data/dataset.h"
#include "trainer/config/config.h"
#include "trainer/report/metrics.h"
#include "trainer/run/reporter.h"
#include "trainer/step/step.h"

namespace trireme::train {

class Illustrations {
 public:
  // Training is not to stand still for longer than this part of the time.
  static constexpr double kMaxOfTheTime = 0.003;

  // Everything outlives it.
  Illustrations(const MetricsConfig& config, const data::Dataset& training, Step& step,
                Reporter& reporter);

  // Of the first batch, which comes after `steps` updates, the samples that are images.
  void batch(const data::Batch& batch, int64_t steps);
  // After `epoch` epochs and `steps` updates, of which none is under way: histograms, when they are
  // due, would not cost too much, and those before have been written. `gradient_scale`: see
  // StepResult.
  void epoch_done(int64_t epoch, int64_t steps, float gradient_scale);

 private:
  using Clock = std::chrono::steady_clock;

  HistogramsRecord copy(float gradient_scale) const;

  const data::Dataset& training_;
  Step& step_;
  Reporter& reporter_;
  const int64_t every_epochs_;  // 0: no histograms
  int64_t samples_;             // still to be shown
  Clock::time_point copied_at_;
  double took_ = 0;  // seconds; 0: nothing has been copied
};

}  // namespace trireme::train
