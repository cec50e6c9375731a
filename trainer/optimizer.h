// The update of the parameters as configured, planned once over the flat arrays.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "ops/backend.h"
#include "ops/step_state.h"
#include "trainer/config.h"

namespace trireme {

// Ranges of the arrays that are updated alike: neighbours with the same weight decay are one, gaps
// between tensors are left out.
std::vector<UpdateRange> update_ranges(const Parameters& parameters, const OptimizerConfig& config);

class Optimizer {
 public:
  Optimizer(const RunConfig& config, const Parameters& parameters, Backend& backend);

  // Queues clipping (if configured) and the update.
  void encode(Stream& stream, void* parameters, void* gradients, StepState* state);

  // What the optimizer remembers per parameter element, laid out as the parameters are.
  struct StateArray {
    std::string name;  // "velocity", "moment1", "moment2"
    Buffer values;
  };
  std::vector<StateArray>& state() { return state_; }
  size_t state_bytes() const;
  void zero_state(Stream& stream);

 private:
  Device& device_;
  std::vector<StateArray> state_;
  std::unique_ptr<OpPlan> squares_plan_;  // only with clipping
  std::unique_ptr<OpPlan> update_plan_;
  Buffer squares_;
  Buffer scratch_;
};

}  // namespace trireme
