#include "trainer/step/memory_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/text.h"
#include "trainer/config/grid.h"
#include "trainer/optimizer/shard.h"

namespace trireme::train {
namespace {

using Use = RankMemory::Use;

constexpr int kMaxGrowth = 16;  // of the number of ranks, to try

std::string size_text(size_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// Compiles the program of the rank that needs most memory, if its lower bound fits. Returns nothing
// if it does not fit.
std::optional<TrainingProgram> fitting_program(const TrainingTarget& target) {
  const BatchPlan smallest = plan_batch(target.config, target.ranks);
  const DeviceKind kind = target.backend.device().kind();
  if (min_memory(target.config, target.graph, smallest, kind, target.ranks).total() >
      target.limit) {
    return std::nullopt;
  }
  model::Parameters parameters;
  TrainingProgram compiled = compile_largest_stage(target, choose_passes(target), parameters);
  if (compiled.memory.total() > target.limit) return std::nullopt;
  return compiled;
}

// Fields that differ from the configured ones.
struct MemoryChoice {
  ParallelConfig::Shard shard = ParallelConfig::NONE;
  bool sets_shard = false;
  bool sets_micro = false;
  int stages = 0;  // 0: as many as configured
  int ranks = 0;   // 0: as many as configured
};

// Returns a description of the choice, or "" if the run would not fit with it.
std::string fitting_text(const TrainingTarget& target, const MemoryChoice& choice) {
  Config config = target.config;
  if (choice.sets_shard) config.run.mutable_parallel()->set_shard(choice.shard);
  if (choice.sets_micro) config.run.mutable_batch()->set_micro(kLargestMicro);
  if (choice.stages > 0) config.run.mutable_parallel()->set_stages(choice.stages);
  const int ranks = choice.ranks > 0 ? choice.ranks : target.ranks;
  const auto compiled = fitting_program({.config = config,
                                         .graph = target.graph,
                                         .backend = target.backend,
                                         .ranks = ranks,
                                         .limit = target.limit,
                                         .batches = target.batches,
                                         .collective = target.collective,
                                         .cut_limit = target.cut_limit});
  if (!compiled) return "";
  std::vector<std::string> settings;
  if (choice.sets_micro) settings.push_back(fmt::format("batch.micro: {}", compiled->batch.micro));
  if (choice.sets_shard) {
    settings.push_back("parallel.shard: " + ParallelConfig::Shard_Name(choice.shard));
  }
  if (choice.stages > 0) settings.push_back(fmt::format("parallel.stages: {}", choice.stages));
  std::string text = fmt::format("{}", fmt::join(settings, " and "));
  if (choice.ranks > 0) {
    text += fmt::format("{}{} ranks with as much memory each", text.empty() ? "" : " on ", ranks);
  }
  return fmt::format("{} ({} per rank)", text, size_text(compiled->memory.total()));
}

// Returns the ways to shard more than configured.
std::vector<ParallelConfig::Shard> further_shards(const RunConfig& run) {
  std::vector<ParallelConfig::Shard> shards;
  for (const auto shard : {ParallelConfig::OPTIMIZER, ParallelConfig::GRADIENTS}) {
    const bool possible = shard != ParallelConfig::GRADIENTS || can_shard_gradients(run);
    if (possible && shard > run.parallel().shard()) shards.push_back(shard);
  }
  return shards;
}

// Returns the first choice that fits with more ranks, or "".
std::string fitting_ranks(const TrainingTarget& target, bool sets_micro) {
  const RunConfig& run = target.config.run;
  const auto shards = further_shards(run);
  MemoryChoice choice{.sets_micro = sets_micro};
  if (!shards.empty()) {
    choice.shard = shards.back();
    choice.sets_shard = true;
  }
  const int64_t max_ranks = std::min<int64_t>(kMaxGrowth * int64_t{target.ranks},
                                              run.batch().global() * run.parallel().stages());
  for (choice.ranks = 2 * target.ranks; choice.ranks <= max_ranks; choice.ranks *= 2) {
    const std::string text = fitting_text(target, choice);
    if (!text.empty()) return text;
  }
  return "";
}

// Returns the smallest number of pipeline stages that fits, or "" if there is none or the network
// has stages already.
std::string fitting_stages(const TrainingTarget& target) {
  const RunConfig& run = target.config.run;
  if (run.parallel().stages() > 1 || run.parallel().shard() == ParallelConfig::GRADIENTS ||
      run.data().has_length_buckets() || model::is_stateful(run.model())) {
    return "";
  }
  for (int stages = 2; stages <= target.ranks; ++stages) {
    if (target.ranks % stages != 0) continue;
    try {
      if (std::string text = fitting_text(target, {.stages = stages}); !text.empty()) return text;
    } catch (const ConfigError&) {
      return "";  // the network cannot be cut into so many
    }
  }
  return "";
}

// Returns the configuration field that contributes most, and how to change it.
std::pair<std::string, std::string> largest_part(const Config& config, const RankMemory& memory) {
  const size_t model = memory.model();
  const size_t activations = memory.of(Use::kSaved) + memory.of(Use::kWork);
  const size_t batches = memory.of(Use::kBatches);
  if (model >= activations + batches) {
    return {"model",
            fmt::format("the network's {} parameters, with gradients and optimizer state, "
                        "take {} per rank; layer '{}' has the most of them; make that "
                        "layer smaller",
                        memory.network.parameters, size_text(model), memory.network.largest_layer)};
  }
  if (activations < batches) return {"batch.global", "lower batch.global, or use more ranks"};
  const bool micro = config.run.batch().has_micro();
  const bool single = micro ? config.run.batch().micro() == 1 : config.run.batch().global() == 1;
  if (single) {
    return {"model", fmt::format("layer '{}' has the largest output; make that layer smaller",
                                 memory.network.largest_output_layer)};
  }
  return micro ? std::pair{"batch.micro", "lower batch.micro"}
               : std::pair{"batch.global", "lower batch.global, or use more ranks"};
}

// Returns what to change, and the field to blame.
std::pair<std::string, std::string> memory_advice(const TrainingTarget& target,
                                                  const RankMemory& memory,
                                                  const MemoryBudget& budget) {
  const auto [field, change] = largest_part(target.config, memory);
  const std::string settings = settings_that_fit(target);
  std::string text = settings.empty() ? change : "this would fit: " + settings;
  if (!target.config.run.memory().has_limit_bytes() || memory.is_lower_bound) return {field, text};
  model::Parameters parameters;
  const size_t needed =
      compile_largest_stage(target, choose_passes(target), parameters).memory.total();
  if (budget.bytes == 0 || needed <= budget.of_rank()) {
    text += fmt::format(", or memory.limit_bytes: {}", needed);
  }
  return {field, text};
}

}  // namespace

std::string settings_that_fit(const TrainingTarget& target) {
  const RunConfig& run = target.config.run;
  if (target.limit == 0) return "";
  const bool can_set_micro =
      run.batch().micro() != kLargestMicro && plan_batch(target.config, target.ranks).micro > 1;
  const Grid grid = grid_of(run, target.rank, target.ranks);
  std::vector<MemoryChoice> single, combined;
  if (can_set_micro) single.push_back({.sets_micro = true});
  if (grid.replicas > 1) {
    for (const auto shard : further_shards(run)) {
      single.push_back({.shard = shard, .sets_shard = true});
      if (can_set_micro) {
        combined.push_back({.shard = shard, .sets_shard = true, .sets_micro = true});
      }
    }
  }
  std::vector<std::string> found;
  for (const MemoryChoice& choice : single) {
    std::string text = fitting_text(target, choice);
    if (text.empty()) continue;
    found.push_back(std::move(text));
    if (choice.sets_shard) break;  // GRADIENTS would fit, too
  }
  for (const MemoryChoice& choice : combined) {
    if (!found.empty()) break;
    if (std::string text = fitting_text(target, choice); !text.empty()) {
      found.push_back(std::move(text));
    }
  }
  if (found.empty()) {
    if (std::string text = fitting_stages(target); !text.empty()) found.push_back(std::move(text));
  }
  if (found.empty()) {
    if (std::string text = fitting_ranks(target, can_set_micro); !text.empty()) {
      found.push_back(std::move(text));
    }
  }
  return fmt::format("{}", fmt::join(found, ", or "));
}

void require_fits(const TrainingTarget& target, const RankMemory& memory,
                  const MemoryBudget& budget) {
  const Config& config = target.config;
  const auto refuse = [&](const std::string& who, size_t bytes, const std::string& available) {
    const auto [field, change] = memory_advice(target, memory, budget);
    throw ConfigError(config.where(field), fmt::format("{} {}{}, but {}; {}", who,
                                                       memory.is_lower_bound ? "at least " : "",
                                                       size_text(bytes), available, change));
  };
  if (target.limit == 0 || memory.total() <= target.limit) return;
  const MemoryConfig& limit = config.run.memory();
  if (limit.has_limit_bytes() && target.limit == static_cast<size_t>(limit.limit_bytes())) {
    refuse("a rank needs", memory.total(), "memory.limit_bytes is " + size_text(target.limit));
  }
  std::vector<std::string> others;
  if (budget.checkpoint > 0) {
    others.push_back("the copy of a checkpoint takes " + size_text(budget.checkpoint));
  }
  if (!limit.has_limit_bytes() && budget.unplanned > 0) {
    others.push_back(fmt::format(
        "the program takes {}{}",
        size_text(budget.is_strict
                      ? budget.unplanned
                      : budget.of_rank() - std::min(budget.of_rank(), budget.of_plan())),
        budget.ranks > 1 ? " per rank" : ""));
  }
  const auto ranks = static_cast<size_t>(budget.ranks);
  const std::string who =
      ranks == 1 ? "a rank needs" : fmt::format("the {} ranks of this host need", ranks);
  std::string available = fmt::format("{} {}", budget.name, size_text(budget.bytes));
  if (!others.empty()) {
    available = fmt::format("{} {}: {}, of which {}", ranks == 1 ? "has" : "have",
                            target.limit > 1 ? size_text(target.limit * ranks) : "nothing",
                            available, fmt::join(others, " and "));
  }
  refuse(who, memory.total() * ranks, available);
}

}  // namespace trireme::train
