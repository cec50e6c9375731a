// One training step on this rank: the compiled network, its memory, the sum of gradients over ranks
// and the update. What `train` repeats and `bench` times.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/bucketer.h"
#include "comm/communicator.h"
#include "data/loader.h"
#include "model/context.h"
#include "trainer/config/config.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/state_arrays.h"
#include "trainer/step/batch_plan.h"
#include "trainer/step/step_result.h"

namespace trireme::train {

class StepProbe;

class Step {
 public:
  // All ranks call it together; `world` is over host memory. Everything handed in outlives the
  // step. Values are undefined until initialize or a checkpoint has set them.
  Step(const Config& config, const model::Graph& graph, ops::Backend& backend,
       comm::Communicator& world);
  ~Step();

  // Initial parameters and running values, zero optimizer state: a pure function of the seed.
  void initialize();
  // Comes after whoever else has written parameters: through state(), or to arrays().
  void parameters_changed();
  // Where parameters are averaged: lets that begin anew, with the parameters as they are.
  void restart_averages();
  // Comes before evaluated_arrays() are read.
  void averages_changed();

  // Forward, backward, sum over ranks, clip, update. `batch` has room for plan().capacity rows and
  // may be used again on return. With `stop_requested` this rank asks all others to stop
  // (kMetricStopRequests). On the CPU the step is done on return, and its result is returned; a GPU
  // is kept one step ahead of the host, and the result is that of the step before, if any.
  std::optional<StepResult> run(const data::Batch& batch, int64_t step, float learning_rate,
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
  const model::Parameters& parameters() const;
  // What is saved and compared. Comes after finish().
  const StateArrays& state() const;
  const model::ModelArrays& arrays() const;
  // For contexts of inference programs to share: with the averages, where there are any, in place
  // of the parameters. Activations only between steps.
  model::ModelArrays evaluated_arrays() const;
  std::span<std::byte> activations() const;
  Optimizer& optimizer();
  const model::Program& program() const;
  std::span<const comm::Bucket> buckets() const;
  Stream& stream();
  // Of all ranks, over the device's memory; what is queued on it goes to stream().
  comm::Communicator& communicator();
  ops::Backend& backend();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
