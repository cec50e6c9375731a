// What came of one training step, and the memory that steps take.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "ops/loss_scale.h"
#include "ops/step_state.h"
#include "trainer/step/timeline.h"

namespace trireme::train {

// Seconds that parts of a step took on the device.
struct StepTimings {
  double forward = 0;
  double backward = 0;       // beside which gradients are summed
  double exposed = 0;        // spent waiting for sums after backward had ended
  double update = 0;         // clipping included
  double communication = 0;  // of all sums, hidden or exposed
  double total() const { return forward + backward + exposed + update; }
};

// What came of a step.
struct StepResult {
  int64_t step = 0;                                   // as it was given to run()
  std::array<float, ops::kMetricCount> metrics = {};  // summed over ranks and samples: see Metric
  StepTimings timings;
  std::optional<ops::LossScale> loss_scale;  // in FP16, after the step
  int64_t skipped_steps = 0;                 // updates left out since the run began
  // The loss or a sum of gradients was not finite, so that the update was left out on all ranks. In
  // FP16 gradients count only at the least loss scale: above it the scale was too large.
  bool not_finite = false;
  float gradient_scale = 1;  // by which the gradients in memory are too large, in FP16
  std::shared_ptr<const StepTimeline> timeline;  // of a step that was profiled
};

// Bytes of this rank's memory by use.
struct StepMemory {
  size_t parameters = 0;  // the copy in low precision included
  size_t gradients = 0;
  size_t optimizer = 0;
  size_t activations = 0;
  size_t batches = 0;  // that a GPU holds; the CPU reads them where they are loaded
  size_t total() const { return parameters + gradients + optimizer + activations + batches; }
};

}  // namespace trireme::train
