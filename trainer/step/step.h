// Runs training steps on this rank. Owns the compiled network, its memory, the all-reduce of the
// gradients and the optimizer. Used by `trireme train` and `trireme bench`.
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
#include "trainer/step/stage_links.h"
#include "trainer/step/step_result.h"

namespace trireme::train {

class StepProbe;

// Functions marked "Collective" must be called by all ranks, in the same order.
class Step {
 public:
  // Plans the batch, compiles the network and allocates all memory. `world` works on host memory.
  // `loader_batches` is the number of batches that the loader buffers, which the plan of a CPU
  // includes. `shorter` are the same network for samples of fewer tokens, see data::Batch::length.
  // All arguments must outlive the step. Parameters are undefined until initialize() or a
  // checkpoint sets them. Throws AgreedError if the network does not fit into memory. Collective.
  Step(const Config& config, const model::Graph& graph, ops::Backend& backend,
       comm::Communicator& world, int loader_batches = 1,
       std::span<const model::Graph> shorter = {});
  ~Step();

  // Sets the initial parameters and running statistics, a pure function of the seed, and clears the
  // optimizer state.
  void initialize();
  // Must be called after anything but run() has written parameters, through state() or arrays().
  void parameters_changed();
  // Resets the averages of the parameters (optimizer.ema), if any, to the current parameters.
  void restart_averages();
  // Must be called before evaluation_arrays() are read.
  void averages_changed();

  // Queues one step: forward, backward, sum over ranks, clip, update. `batch` must have room for
  // plan().capacity rows and may be reused on return. `stop_requested` asks all ranks to stop, in
  // kMetricStopRequests of the result. On the CPU the step is done on return, and its result is
  // returned. On a GPU one step stays in flight, and the result of the step before is returned, if
  // there is one. Collective.
  std::optional<StepResult> run(const data::Batch& batch, int64_t step, float learning_rate,
                                bool stop_requested = false);
  // Blocks until all steps are done. Returns the result that run() has not returned yet, if any.
  // Must be called before parameters are read. Collective.
  std::optional<StepResult> finish();
  // The part of finish() that receives the parameters that other ranks have updated (with ZeRO).
  // Requires that all steps are done. Collective.
  void gather_parameters();

  // Starts or ends profiling: the results of profiled steps have timelines. Must be called after
  // finish(). On a GPU profiled steps are queued eagerly instead of replayed from a recording.
  void profile(bool on);
  // Returns the probe that measures profiled steps, or null if steps are not profiled.
  const StepProbe* probe() const;

  // Recomputes the batch of the latest result, checks every instruction, and returns the first
  // non-finite value on this rank, if any. Changes no lasting state, even if a GPU has another step
  // in flight. Must be called before the next run(). Collective.
  struct NotFinite {
    int64_t when = 0;  // order of execution, comparable between ranks
    std::string what;
  };
  std::optional<NotFinite> find_not_finite();

  // Replaces the running statistics (of batch norm) with their means over all ranks, weighted by
  // the samples that each has seen since the last call. Collective.
  void average_running_stats();

  const BatchPlan& plan() const;
  // Returns the floating-point operations of this rank in a step with such a batch, of which only
  // the length and the number of rows matter. A multiply-add counts as two.
  double flops(const data::Batch& batch) const;
  StepMemory memory_bytes() const;
  // Returns the bytes that the plan of this rank should not exceed; 0 if unknown.
  size_t memory_limit() const;
  const model::Parameters& parameters() const;
  // Returns the tensors that are saved and compared. Call finish() first.
  const StateArrays& state() const;
  const model::ModelArrays& arrays() const;
  // Returns arrays for contexts of inference programs, with the averages in place of the parameters
  // if there are averages.
  model::ModelArrays evaluation_arrays() const;
  // Returns the memory of the activations, which others may use between steps.
  std::span<std::byte> activations() const;
  Optimizer& optimizer();
  const model::Program& program() const;
  std::span<const comm::Bucket> buckets() const;
  // With ZeRO, returns the arrays of the parameters that are all-gathered, by bucket; otherwise
  // nothing.
  std::span<const comm::Bucketer::Array> gathered() const;
  Stream& stream();
  // Returns the pipeline stage that program() computes. No step may be in flight when others use
  // its links.
  const PipelineStage& stage() const;
  // Returns the communicator of all ranks over device memory. Its operations must be queued on
  // stream().
  comm::Communicator& communicator();
  ops::Backend& backend();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
