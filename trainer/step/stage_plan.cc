#include "trainer/step/stage_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "core/text.h"
#include "model/recompute.h"

namespace trireme::train {
namespace {

// The time of transferring a byte between ranks, in units of the time in which a device reads or
// writes one.
constexpr double kTransferCost = 4;

std::string layer_before(const model::Graph& graph, const model::Cut& cut) {
  return graph.nodes[static_cast<size_t>(cut.node) - 1].name;
}

void require_separable(const Config& config, const model::Graph& graph,
                       const model::Program& whole) {
  for (const model::InstructionReport& instruction : whole.instructions()) {
    if (instruction.operation != "all_reduce") continue;
    throw ConfigError(
        config.where("parallel.stages"),
        fmt::format("layer '{}' computes batch norm statistics over all ranks, which pipeline "
                    "stages cannot; unset `sync`, or use parallel.stages: 1",
                    graph.nodes[static_cast<size_t>(instruction.layer)].name));
  }
}

std::vector<int> configured_cuts(const Config& config, const model::Graph& graph,
                                 const std::vector<model::Cut>& cuts) {
  std::vector<std::string> names;
  for (const model::Cut& cut : cuts) names.push_back(layer_before(graph, cut));
  std::vector<int> begins;
  for (const std::string& name : config.run.parallel().cut_after()) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      throw ConfigError(config.where("parallel.cut_after"),
                        fmt::format("the network cannot be cut after a layer '{}'{}",
                                    printable(name), did_you_mean(name, names)));
    }
    const int begin = cuts[static_cast<size_t>(found - names.begin())].node;
    if (!begins.empty() && begin <= begins.back()) {
      throw ConfigError(config.where("parallel.cut_after"),
                        fmt::format("'{}' does not come after '{}'; name the layers in order", name,
                                    graph.nodes[static_cast<size_t>(begins.back()) - 1].name));
    }
    begins.push_back(begin);
  }
  return begins;
}

// Returns the time of the nodes before each node, forward and backward, in units of the time of a
// byte.
std::vector<double> cumulated_costs(const model::Graph& graph, const model::Program& whole,
                                    DeviceKind kind) {
  std::vector<double> costs(graph.nodes.size() + 1);
  for (const model::InstructionReport& instruction : whole.instructions()) {
    const auto node = static_cast<size_t>(std::max(instruction.layer, 0));
    costs[node + 1] += std::max(instruction.bytes, instruction.flops / model::flops_per_byte(kind));
  }
  std::partial_sum(costs.begin(), costs.end(), costs.begin());
  return costs;
}

// Finds the cuts with the lowest time of the slowest stage by dynamic programming over the number of
// stages.
std::vector<int> fastest_cuts(const std::vector<model::Cut>& cuts, const std::vector<double>& costs,
                              size_t stages) {
  const size_t places = cuts.size() + 2;  // the beginning, the cuts and the end of the network
  const auto node = [&](size_t place) {
    return place == 0            ? 0
           : place > cuts.size() ? costs.size() - 1
                                 : static_cast<size_t>(cuts[place - 1].node);
  };
  const auto transfer = [&](size_t place) {
    if (place == 0 || place > cuts.size()) return 0.0;
    const model::Cut& cut = cuts[place - 1];
    return kTransferCost * static_cast<double>(cut.forward_bytes + cut.backward_bytes);
  };
  constexpr double kImpossible = std::numeric_limits<double>::infinity();
  // By the number of stages so far and the place where the last one ends.
  std::vector<std::vector<double>> slowest(stages + 1, std::vector<double>(places, kImpossible));
  std::vector<std::vector<size_t>> begin(stages + 1, std::vector<size_t>(places));
  slowest[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    for (size_t end = 1; end < places; ++end) {
      for (size_t from = 0; from < end; ++from) {
        const double own = costs[node(end)] - costs[node(from)] + transfer(from) + transfer(end);
        const double time = std::max(slowest[s - 1][from], own);
        if (time >= slowest[s][end]) continue;
        slowest[s][end] = time;
        begin[s][end] = from;
      }
    }
  }
  std::vector<int> begins;
  for (size_t s = stages, end = places - 1; s > 1; --s) {
    end = begin[s][end];
    begins.insert(begins.begin(), static_cast<int>(node(end)));
  }
  return begins;
}

}  // namespace

std::vector<int> plan_stages(const Config& config, const model::Graph& graph,
                             const model::Program& whole, DeviceKind kind) {
  require_separable(config, graph, whole);
  const std::vector<model::Cut> cuts = whole.cuts();
  const int stages = config.run.parallel().stages();
  if (!config.run.parallel().cut_after().empty()) return configured_cuts(config, graph, cuts);
  if (static_cast<int>(cuts.size()) < stages - 1) {
    throw ConfigError(config.where("parallel.stages"),
                      fmt::format("the network can be cut at {} places only, into {} stages",
                                  cuts.size(), cuts.size() + 1));
  }
  return fastest_cuts(cuts, cumulated_costs(graph, whole, kind), static_cast<size_t>(stages));
}

}  // namespace trireme::train
