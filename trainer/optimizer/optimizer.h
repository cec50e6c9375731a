// The optimizer: the operations that update the parameters, planned once for the flat arrays.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "core/collective.h"
#include "model/context.h"
#include "model/parameters.h"
#include "ops/backend.h"
#include "ops/loss_scale.h"
#include "ops/step_state.h"
#include "trainer/config/config.h"
#include "trainer/optimizer/shard.h"

namespace trireme::train {

// Returns the ranges of the arrays that a shard updates with the same settings, without frozen
// parameters and the padding between tensors. For a layer-wise rule (LARS, LAMB) there is a range
// for each tensor, which may be empty; for others, adjacent tensors with equal settings are merged.
std::vector<ops::UpdateRange> update_ranges(const model::Parameters& parameters,
                                            const OptimizerConfig& config, Shard shard = {});

// Returns the names of the optimizer's state arrays, such as "velocity".
std::vector<std::string> optimizer_state_names(const OptimizerConfig& config);

// Returns whether a moving average of the parameters is computed (optimizer.ema).
inline bool uses_ema(const OptimizerConfig& config) { return config.ema().decay() > 0; }

// The ranks that have other parts of the model; null if there are none.
struct ModelRanks {
  Collective* shards = nullptr;  // have the other shards
  Collective* stages = nullptr;  // have the other pipeline stages
  int stage = 0;                 // of this rank
};

class Optimizer {
 public:
  // Updates the shard of this rank. `ranks` must outlive the optimizer.
  Optimizer(const RunConfig& config, const model::Parameters& parameters, ops::Backend& backend,
            Shard shard = {}, ModelRanks ranks = {});

  // In FP16, queues the multiplication of the loss gradient by the loss scale. Otherwise does
  // nothing. Call before the forward pass of each micro-batch.
  void encode_loss_scaling(Stream& stream, ops::StepState* state) const;
  // Queues gradient clipping (if configured) and the update of the parameters, of their copy in low
  // precision and of their averages (null if there are none). If the loss or a gradient is not
  // finite, or the optimizer's state would not be, nothing is updated, and the running statistics
  // get the values that they had before the step.
  void encode(Stream& stream, const model::ModelArrays& model, void* averages,
              const Buffer& running_stats_before, ops::StepState* state) const;

  // An array with one element for each parameter element of the shard. Without shards it is laid
  // out like the gradients.
  struct StateArray {
    std::string name;  // see optimizer_state_names
    Buffer values;
  };
  std::vector<StateArray>& state() { return state_; }
  size_t state_bytes() const;
  // Sets all state to zero, the loss scale to its initial value, and the count of skipped updates
  // to 0.
  void reset_state(Stream& stream);

  // Returns whether the loss is scaled, which is the case in FP16.
  bool scales_loss() const { return scale_plan_ != nullptr; }
  struct Outcome {
    ops::LossScale scale;  // counts skipped updates in all precisions; 1 without loss scaling
    double squares = 0;    // sum of squares of the gradients, negative if it is too large
  };
  // Returns the outcome of the last update, in device memory.
  void* outcome() const { return outcome_.data(); }
  // Sets the loss scale and the count of skipped updates. Blocks until they are copied.
  void set_loss_scale(ops::LossScale value, Stream& stream);

 private:
  void plan_update(const RunConfig& config, const model::Parameters& parameters,
                   ops::Backend& backend, Shard shard);
  void* squares() const { return &outcome_.as<Outcome>()->squares; }
  // Queues the sum of an f64 array over the ranks, unless they are null.
  static void sum_over(Collective* ranks, void* values, int64_t count, Stream& stream);
  // Queues a plan whose arguments are `args`, followed by the state arrays.
  void encode_with_slots(const ops::OpPlan& plan, Stream& stream,
                         std::initializer_list<void*> args) const;

  Device& device_;
  ModelRanks ranks_;
  std::vector<StateArray> state_;
  std::unique_ptr<ops::OpPlan> scale_plan_;  // only in FP16
  std::unique_ptr<ops::OpPlan> squares_plan_;
  std::unique_ptr<ops::OpPlan> tensor_squares_plan_, ratios_plan_;  // only for a layer-wise rule
  std::unique_ptr<ops::OpPlan> update_plan_;
  std::unique_ptr<ops::OpPlan> adjust_plan_;
  Buffer outcome_;
  Buffer tensor_squares_;
  Buffer trust_ratios_;
  Buffer scratch_;
};

}  // namespace trireme::train
