#include "trainer/step/batch_statistics.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/sampler.h"
#include "model/layer.h"

namespace trireme::train {
namespace {

using model::Layer;
using Statistics = Layer::Statistics;

constexpr int64_t kMaxSuggested = 1000;  // how far from batch.global a suggestion may be

// How a step divides the batch for statistics.
struct Division {
  const BatchPlan& batch;
  int replicas = 1;

  bool has_micro_batches() const { return batch.passes > 1; }
  int64_t share(int64_t global_rows, int replica) const {
    return data::share_of(global_rows, replica, replicas).rows;
  }
  // Returns the samples of a replica's last micro-batch; 0 if it has none.
  int64_t last_rows(int64_t global_rows, int replica) const {
    const int64_t rows = share(global_rows, replica);
    return rows == 0 ? 0 : (rows - 1) % batch.micro + 1;
  }
};

Statistics statistics_of(const model::Node& node) {
  return node.signature.trained() ? node.layer->statistics() : Statistics::kNone;
}

// Describes the samples: "micro-batches of 4 samples of each of 2 ranks".
std::string samples_text(Statistics statistics, const Division& division) {
  const bool several = division.replicas > 1;
  const bool joint = statistics == Statistics::kOfAllRanks;
  if (!division.has_micro_batches() && (joint || !several)) return "the whole batch";
  std::string text =
      fmt::format("{}{} sample{}", division.has_micro_batches() ? "micro-batches of " : "",
                  division.batch.micro, division.batch.micro == 1 ? "" : "s");
  if (several) {
    text += fmt::format(" {} {} ranks", joint ? "on all" : "of each of", division.replicas);
    if (joint) text += " together";
  }
  return text;
}

// Returns whether the statistics of a step with `global_rows` are ever of one sample. Shares differ
// by at most one sample, the first is the largest, and the last micro-batch is the smallest.
bool has_single_sample(Statistics statistics, const Division& division, int64_t global_rows) {
  const bool first = division.last_rows(global_rows, 0) == 1;
  if (division.replicas == 1) return first;
  const int last = division.replicas - 1;
  if (statistics == Statistics::kOfRank) return first || division.last_rows(global_rows, last) == 1;
  const int64_t others = division.share(global_rows, 1);
  return first && others < division.share(global_rows, 0);
}

// Returns the samples of the last batch of an epoch; 0 if it is full or unknown or if the run does
// not reach it.
int64_t short_batch(const TrainConfig& train, int64_t global, int64_t samples) {
  const int64_t rows = samples % global;
  const bool reached = !train.has_max_steps() || train.max_steps() > samples / global;
  return reached ? rows : 0;
}

// Returns whether training works with another size of the batch or of micro-batches.
bool works_with(const Config& changed, Statistics statistics, int ranks, int64_t samples) {
  const BatchPlan batch = plan_batch(changed, ranks);
  const Division division{batch, grid_of(changed.run, 0, ranks).replicas};
  const int64_t rest = short_batch(changed.run.train(), batch.global, samples);
  return !has_single_sample(statistics, division, batch.global) &&
         (rest == 0 || !has_single_sample(statistics, division, rest));
}

// Returns ", for example batch.global: 64": the nearest size that works, or "" if none is near.
std::string suggestion(const Config& config, Statistics statistics, int ranks, int64_t samples) {
  Config changed = config;
  BatchConfig& batch = *changed.run.mutable_batch();
  for (int64_t micro = 2; batch.has_micro() && micro < 2 * batch.global(); micro *= 2) {
    batch.set_micro(micro);
    if (works_with(changed, statistics, ranks, samples)) {
      return fmt::format(", for example batch.micro: {}", micro);
    }
  }
  const int64_t configured = config.run.batch().global();
  for (int64_t distance = 1; distance < kMaxSuggested; ++distance) {
    for (const int64_t global : {configured + distance, configured - distance}) {
      if (global < grid_of(config.run, 0, ranks).replicas) continue;
      batch.set_global(global);
      if (works_with(changed, statistics, ranks, samples)) {
        return fmt::format(", for example batch.global: {}", global);
      }
    }
  }
  return "";
}

}  // namespace

std::string statistics_warning(const model::Graph& graph, const BatchPlan& batch,
                               const Grid& grid) {
  const Division division{batch, grid.replicas};
  if (!division.has_micro_batches()) return "";
  const auto found = std::ranges::find_if(graph.nodes, [](const model::Node& node) {
    return statistics_of(node) != Statistics::kNone;
  });
  if (found == graph.nodes.end()) return "";
  return fmt::format(
      "batch norm (layer '{}') computes its statistics over {}, not over the whole batch, so "
      "results depend on batch.micro, parallel.stages and the number of ranks",
      found->name, samples_text(statistics_of(*found), division));
}

std::optional<std::string> statistics_change(const model::Graph& graph,
                                             const StatisticsSettings& before,
                                             const StatisticsSettings& now) {
  const auto text = [](const StatisticsSettings& settings, Statistics statistics) {
    const BatchPlan batch = plan_batch(settings.config, settings.ranks);
    const Grid grid = grid_of(settings.config.run, 0, settings.ranks);
    return samples_text(statistics, {batch, grid.replicas});
  };
  for (const model::Node& node : graph.nodes) {
    const Statistics statistics = statistics_of(node);
    if (statistics == Statistics::kNone) continue;
    const std::string old_text = text(before, statistics), new_text = text(now, statistics);
    if (old_text == new_text) continue;
    return fmt::format("samples of the statistics of batch norm (layer '{}'): {} -> {}", node.name,
                       old_text, new_text);
  }
  return std::nullopt;
}

void require_statistics(const Config& config, const model::Graph& graph, const BatchPlan& batch,
                        int ranks, int64_t samples) {
  const Division division{batch, grid_of(config.run, 0, ranks).replicas};
  const int64_t rest = short_batch(config.run.train(), batch.global, samples);
  for (const model::Node& node : graph.nodes) {
    const Statistics statistics = statistics_of(node);
    const Shape& output = node.signature.output;
    if (statistics == Statistics::kNone || output.elements() != output[0]) continue;
    const bool in_full = has_single_sample(statistics, division, batch.global);
    if (!in_full && (rest == 0 || !has_single_sample(statistics, division, rest))) continue;
    const std::string where = in_full ? "a step"
                                      : fmt::format("the last step of an epoch, of {} sample{}",
                                                    rest, rest == 1 ? "" : "s");
    const bool micro = in_full && config.run.batch().has_micro();
    throw ConfigError(
        config.where(micro ? "batch.micro" : "batch.global"),
        fmt::format("batch norm (layer '{}') would compute statistics of one sample in {}: a "
                    "single value per channel has no variance, and nothing before the layer would "
                    "be trained; use another size{}",
                    node.name, where, suggestion(config, statistics, ranks, samples)));
  }
}

}  // namespace trireme::train
