#include "launch/measure_operations.h"

#include "trainer/step/layer_costs.h"

namespace trireme::cli {

std::vector<double> measure_operations(const RankPlan& plan, const model::Graph& graph) {
  return train::measure_instructions(graph, *plan.program, plan.parameters, *plan.backend,
                                     plan.batch.micro);
}

double recomputation_seconds(const model::Program& program, const RankPlan& measured,
                             const std::vector<double>& seconds) {
  const auto own = measured.program->instructions();
  std::vector<double> repeated(seconds);  // by operation of the forward pass
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].repeats()) repeated[static_cast<size_t>(own[i].repeated)] = seconds[i];
  }
  double total = 0;
  for (const model::InstructionReport& instruction : program.instructions()) {
    if (instruction.repeats()) total += repeated[static_cast<size_t>(instruction.repeated)];
  }
  return total;
}

}  // namespace trireme::cli
