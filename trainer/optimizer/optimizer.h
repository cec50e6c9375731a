// The update of the parameters as configured, planned once over the flat arrays.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "model/context.h"
#include "model/parameters.h"
#include "ops/backend.h"
#include "ops/step_state.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Ranges of the arrays that are updated in the same way, without the gaps between tensors. To a
// layer-wise rule each tensor is one; otherwise neighbors that do not differ are.
std::vector<ops::UpdateRange> update_ranges(const model::Parameters& parameters,
                                            const OptimizerConfig& config);

// The names of what the optimizer remembers of each parameter element: "velocity".
std::vector<std::string> optimizer_state_names(const OptimizerConfig& config);

// Whether the parameters are averaged.
inline bool averages(const OptimizerConfig& config) { return config.ema().decay() > 0; }

class Optimizer {
 public:
  Optimizer(const RunConfig& config, const model::Parameters& parameters, ops::Backend& backend);

  // Queues, before the forward pass of each micro-batch, what FP16 does to the gradient of its
  // loss.
  void encode_loss_scaling(Stream& stream, ops::StepState* state) const;
  // Queues clipping (if configured) and the update of the values and, where there are such, of
  // their copy in low precision and their averages. Where the loss, which is in front of the
  // gradients, or a gradient is not finite, nothing is updated.
  void encode(Stream& stream, const model::ModelArrays& model, void* averages,
              ops::StepState* state) const;

  // What the optimizer remembers per parameter element, laid out as the gradients are.
  struct StateArray {
    std::string name;  // of optimizer_state_names
    Buffer values;
  };
  std::vector<StateArray>& state() { return state_; }
  size_t state_bytes() const;
  // Zeros, nothing skipped, and the loss scale that FP16 begins with.
  void reset_state(Stream& stream);

  // Whether the loss is scaled: in FP16.
  bool scales_loss() const { return scale_plan_ != nullptr; }
  // Where the device counts skipped updates, in all precisions; without scaling the scale stays 1.
  void* loss_scale() const { return loss_scale_.data(); }
  void set_loss_scale(ops::LossScale value, Stream& stream);

 private:
  void plan_update(const RunConfig& config, const model::Parameters& parameters,
                   ops::Backend& backend);
  // With the slots behind the other args.
  void encode_with_slots(const ops::OpPlan& plan, Stream& stream,
                         std::initializer_list<void*> args) const;

  Device& device_;
  std::vector<StateArray> state_;
  std::unique_ptr<ops::OpPlan> scale_plan_;  // only in FP16
  std::unique_ptr<ops::OpPlan> squares_plan_;
  std::unique_ptr<ops::OpPlan> ratios_plan_;  // only of a layer-wise rule
  std::unique_ptr<ops::OpPlan> update_plan_;
  std::unique_ptr<ops::OpPlan> adjust_plan_;
  Buffer loss_scale_;
  Buffer squares_;
  Buffer trust_ratios_;
  Buffer scratch_;
};

}  // namespace trireme::train
