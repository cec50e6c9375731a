// The result of a training step, and the memory that steps use.
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

// Seconds that the phases of a step took on the device.
struct StepTimings {
  double forward = 0;
  double backward = 0;       // overlaps with gradient sums
  double exposed = 0;        // waiting for gradient sums after the backward pass
  double update = 0;         // including clipping
  double idle = 0;           // waiting for other pipeline stages
  double communication = 0;  // time of gradient sums and gathers, overlapped or exposed
  double total() const { return forward + backward + exposed + update + idle; }
};

struct StepResult {
  int64_t step = 0;  // as passed to Step::run
  std::array<float, ops::kMetricCount> metrics =
      {};  // summed over ranks and samples; see ops::Metric
  StepTimings timings;
  std::optional<ops::LossScale> loss_scale;  // after the step; set in FP16
  int64_t skipped_steps = 0;                 // updates skipped since the run began
  // The loss or a sum of gradients was not finite, or the optimizer's state would not have been
  // (see ops::kMaxGradientNorm), so all ranks skipped the update. In FP16,
  // non-finite gradients count only at the minimum loss scale: at a larger one, the scale is
  // lowered.
  bool not_finite = false;
  // If the reason is that the optimizer's state would not be finite: the L2 norm of the gradient,
  // which is; otherwise 0.
  double overflowing_norm = 0;
  // Factor by which the gradients in memory differ from those of the mean loss, because of loss
  // scaling and of the divisor that the backward pass assumed (see ops::label_correction).
  float gradient_scale = 1;
  std::shared_ptr<const StepTimeline> timeline;  // null unless the step was profiled
};

// Bytes of this rank's memory, by use.
struct StepMemory {
  size_t parameters = 0;  // including the low-precision copy
  size_t gradients = 0;
  size_t optimizer = 0;
  size_t activations = 0;
  size_t batches = 0;  // in GPU memory; the CPU reads batches in place
  size_t total() const { return parameters + gradients + optimizer + activations + batches; }
};

}  // namespace trireme::train
