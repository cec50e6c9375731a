#include "trainer/step/stage_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/text.h"
#include "trainer/step/stage_memory.h"

namespace trireme::train {
namespace {

// The time of transferring a byte between ranks, relative to that in which a device reads or writes
// one.
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

// Returns the node after the last one that is the layer, or that the layer was fused into, or that
// belongs to the block of this name ("layer1.0" has "layer1.0.conv1"). 0 if there is none.
int node_after(const model::Graph& graph, const std::string& name) {
  const auto is_it = [&](const std::string& layer) {
    return layer == name || layer.starts_with(name + ".");
  };
  for (size_t n = graph.nodes.size(); n > 0; --n) {
    const model::Node& node = graph.nodes[n - 1];
    if (is_it(node.name) || std::ranges::any_of(node.fused, is_it)) return static_cast<int>(n);
  }
  return 0;
}

// Returns "; it can be cut after 'conv1' and 'conv2'": the places around a node.
std::string nearest_cuts(const model::Graph& graph, const std::vector<model::Cut>& cuts, int node) {
  const auto next = std::ranges::lower_bound(cuts, node, {}, &model::Cut::node);
  std::vector<std::string> names;
  if (next != cuts.begin()) names.push_back(layer_before(graph, *std::prev(next)));
  if (next != cuts.end()) names.push_back(layer_before(graph, *next));
  return names.empty() ? ""
                       : fmt::format("; it can be cut after '{}'", fmt::join(names, "' and '"));
}

std::vector<int> configured_cuts(const Config& config, const model::Graph& graph,
                                 const std::vector<model::Cut>& cuts) {
  std::vector<int> begins;
  for (const std::string& name : config.run.parallel().cut_after()) {
    const int begin = node_after(graph, name);
    if (begin == 0) {
      std::vector<std::string> names;
      for (const model::Cut& cut : cuts) names.push_back(layer_before(graph, cut));
      throw ConfigError(config.where("parallel.cut_after"),
                        fmt::format("the network has no layer '{}'{}", printable(name),
                                    did_you_mean(name, names)));
    }
    if (std::ranges::find(cuts, begin, &model::Cut::node) == cuts.end()) {
      throw ConfigError(config.where("parallel.cut_after"),
                        fmt::format("the network cannot be cut after '{}'{}", name,
                                    nearest_cuts(graph, cuts, begin)));
    }
    if (!begins.empty() && begin <= begins.back()) {
      throw ConfigError(config.where("parallel.cut_after"),
                        fmt::format("'{}' does not come after '{}'; name the layers in order", name,
                                    graph.nodes[static_cast<size_t>(begins.back()) - 1].name));
    }
    begins.push_back(begin);
  }
  return begins;
}

// Chooses the cuts by dynamic programming over the number of stages and the places where they end.
class CutSearch {
 public:
  CutSearch(const NetworkToCut& network, const std::vector<model::Cut>& cuts,
            const LayerCosts& costs)
      : network_(network), cuts_(cuts), memory_(network, cuts), before_(costs.size() + 1) {
    std::partial_sum(costs.begin(), costs.end(), before_.begin() + 1);
  }

  std::vector<int> best(int stages) {
    // By the number of stages so far and the place where the last one ends.
    const auto count = static_cast<size_t>(stages);
    std::vector<std::vector<Score>> best(count + 1, std::vector<Score>(places()));
    std::vector<std::vector<size_t>> begin(count + 1, std::vector<size_t>(places()));
    best[0][0].excess = 0;
    for (size_t s = 1; s <= count; ++s) {
      for (size_t end = s; end < places(); ++end) {
        if (s == count && end + 1 < places()) continue;
        for (size_t from = s - 1; from < end; ++from) {
          if (best[s - 1][from].is_impossible()) continue;
          const Score score =
              worst(best[s - 1][from], stage(static_cast<int>(s) - 1, stages, from, end));
          if (!(score < best[s][end])) continue;
          best[s][end] = score;
          begin[s][end] = from;
        }
      }
    }
    std::vector<int> begins;
    for (size_t s = count, end = places() - 1; s > 1; --s) {
      end = begin[s][end];
      begins.insert(begins.begin(), node(end));
    }
    return begins;
  }

 private:
  // Bytes above the limit matter first, then the time of the slowest stage.
  struct Score {
    size_t excess = std::numeric_limits<size_t>::max();
    double seconds = 0;
    bool operator<(const Score& other) const {
      return std::pair(excess, seconds) < std::pair(other.excess, other.seconds);
    }
    bool is_impossible() const { return excess == std::numeric_limits<size_t>::max(); }
  };
  static Score worst(const Score& a, const Score& b) {
    return {std::max(a.excess, b.excess), std::max(a.seconds, b.seconds)};
  }

  // The beginning of the network, the cuts and its end.
  size_t places() const { return cuts_.size() + 2; }
  const model::Cut* cut(size_t place) const {
    return place == 0 || place > cuts_.size() ? nullptr : &cuts_[place - 1];
  }
  int node(size_t place) const {
    if (place == 0) return 0;
    return cut(place) ? cut(place)->node : static_cast<int>(network_.graph.nodes.size());
  }
  double transfer(size_t place) const {
    const model::Cut* const at = cut(place);
    if (!at) return 0;
    const double speed = typical_memory_speed(network_.backend.device().kind());
    return kTransferCost * static_cast<double>(at->forward_bytes + at->backward_bytes) / speed;
  }

  Score stage(int index, int stages, size_t from, size_t end) {
    const double own = before_[static_cast<size_t>(node(end))] -
                       before_[static_cast<size_t>(node(from))] + transfer(from) + transfer(end);
    return {memory_.excess(index, stages, from, end), own};
  }

  const NetworkToCut& network_;
  const std::vector<model::Cut>& cuts_;
  StageMemory memory_;
  std::vector<double> before_;  // seconds of the nodes before each node
};

}  // namespace

std::vector<int> plan_stages(const NetworkToCut& network, const LayerCosts& costs) {
  const Config& config = network.config;
  require_separable(config, network.graph, network.whole);
  const std::vector<model::Cut> cuts = network.whole.cuts();
  const int stages = config.run.parallel().stages();
  if (!config.run.parallel().cut_after().empty()) {
    return configured_cuts(config, network.graph, cuts);
  }
  if (std::ssize(cuts) < stages - 1) {
    throw ConfigError(config.where("parallel.stages"),
                      fmt::format("{} stages need {} cuts, but there are only {} places where the "
                                  "network can be cut; use at most {}",
                                  stages, stages - 1, cuts.size(), cuts.size() + 1));
  }
  return CutSearch(network, cuts, costs).best(stages);
}

}  // namespace trireme::train
