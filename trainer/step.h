// One training step on this rank: the compiled network, its memory, the sum of gradients over ranks
// and the update. What `train` repeats and `bench` times.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/bucketer.h"
#include "comm/communicator.h"
#include "data/loader.h"
#include "model/context.h"
#include "trainer/config.h"
#include "trainer/optimizer.h"
#include "trainer/profile/timeline.h"

namespace trireme {

class StepProbe;

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
  int64_t step = 0;                              // as it was given to run()
  std::array<float, kMetricCount> metrics = {};  // summed over ranks and samples: see Metric
  StepTimings timings;
  std::optional<LossScale> loss_scale;  // in FP16, after the step
  int64_t skipped_steps = 0;            // updates left out since the run began
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

// How a global batch is cut: over ranks, and each share into micro-batches. The same on all ranks.
struct BatchPlan {
  int64_t global = 0;
  int64_t micro = 0;     // rows of one forward and backward pass
  int64_t passes = 0;    // of a full batch
  int64_t capacity = 0;  // rows that a Batch must have room for: micro * passes
};
// Throws ConfigError when the batch has fewer samples than there are ranks.
BatchPlan plan_batch(const Config& config, int ranks);

// Steps that may be under way at once. A GPU computes one while the next is being prepared, and
// holds a batch for each.
inline int steps_under_way(DeviceKind kind) { return kind == DeviceKind::kCpu ? 1 : 2; }

class Step {
 public:
  // All ranks call it together; `world` is over host memory. Everything handed in outlives the
  // step. Values are undefined until initialise or a checkpoint has set them.
  Step(const Config& config, const Graph& graph, Backend& backend, Communicator& world);
  ~Step();

  // Initial parameters and running values, zero optimizer state: a pure function of the seed.
  void initialise();
  // Comes after whoever else has written to arrays().parameters.
  void parameters_changed();

  // Forward, backward, sum over ranks, clip, update. `batch` has room for plan().capacity rows and
  // may be used again on return. With `stop_requested` this rank asks all others to stop
  // (kMetricStopRequests). On the CPU the step is done on return, and its result is returned; a GPU
  // is kept one step ahead of the host, and the result is that of the step before, if any.
  std::optional<StepResult> run(const Batch& batch, int64_t step, float learning_rate,
                                bool stop_requested = false);
  // Blocks until all steps are done; the result that run() has not returned yet, if any. Comes
  // before parameters are looked at.
  std::optional<StepResult> finish();

  // From now on results have timelines, or no longer; that comes after finish(). On a GPU such
  // steps are queued anew instead of replayed.
  void profile(bool on);
  // What marks their times; null where none are marked.
  const StepProbe* probe() const;

  // Computes the batch of the latest result again, with a look at each instruction, and tells what
  // of this rank was not finite first. All ranks call it together, before the next run(). Nothing
  // that lasts is changed; running values were put back to what they were before that step (on a
  // GPU the step under way meanwhile leaves no trace in them either).
  struct NotFinite {
    int64_t when = 0;  // orders what ranks have found
    std::string what;
  };
  std::optional<NotFinite> find_not_finite();

  // Makes running values (of batch norm) the mean over ranks. All ranks call it together.
  void average_running_values();

  const BatchPlan& plan() const;
  StepMemory memory_bytes() const;
  const Parameters& parameters() const;
  // For contexts of inference programs to share; activations only between steps.
  const ModelArrays& arrays() const;
  std::span<std::byte> activations();
  Optimizer& optimizer();
  const Program& program() const;
  std::span<const Bucket> buckets() const;
  Stream& stream();
  // Of all ranks, over the device's memory; what is queued on it goes to stream().
  Communicator& communicator();
  Backend& backend();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
