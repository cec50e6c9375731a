#include "trainer/step/training_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "comm/bucketer.h"
#include "core/alignment.h"
#include "trainer/config/device.h"
#include "trainer/config/grid.h"
#include "trainer/step/layer_costs.h"
#include "trainer/step/pipeline_schedule.h"
#include "trainer/step/stage_plan.h"

namespace trireme::train {

namespace {

model::CompileOptions training_options(const TrainingTarget& target, const BatchPlan& batch) {
  const Config& config = target.config;
  const BucketConfig& buckets = config.run.buckets();
  const comm::BucketOptions sizes{buckets.first_bytes(), buckets.bytes(), buckets.last_bytes()};
  const Shard shard = shard_of(config.run, 0, target.ranks);
  model::CompileOptions options;
  options.collective = target.collective;
  options.batch = batch.micro;
  options.accumulate = accumulates(config, batch, shard);
  options.transient_gradients = shard.has_gradients;
  options.dtype = compute_dtype(config);
  options.carry_states = true;
  options.bucket_ends = [sizes](std::span<const int64_t> ends) {
    std::vector<int64_t> chosen;
    for (const comm::Bucket& bucket : comm::cut_buckets(ends, DType::kF32, sizes)) {
      chosen.push_back(bucket.end);
    }
    return chosen;
  };
  if (!shard.is_whole()) options.bucket_multiple = shard.count * kShardAlignment;
  return options;
}

TrainingProgram compile(const TrainingTarget& target, const BatchPlan& batch,
                        size_t activation_limit, model::Parameters& parameters) {
  model::CompileOptions options = training_options(target, batch);
  const Grid grid = grid_of(target.config.run, target.rank, target.ranks);
  if (grid.has_pipeline()) {
    model::Parameters all;
    const auto whole = compile_whole(target, batch, all);
    const NetworkToCut network{target.config, target.graph, target.backend, *whole,
                               all,           batch,        target.ranks,   target.cut_limit};
    options.stage = {
        plan_stages(network, estimate_layers(target.graph, *whole, target.backend.device().kind())),
        grid.stage};
  }
  options.activation_limit = activation_limit;
  TrainingProgram compiled{.batch = batch, .stage = options.stage};
  compiled.program = model::Program::compile(target.graph, target.backend, options, parameters);
  compiled.memory =
      planned_memory(target.config, target.graph, batch, target.backend.device().kind(),
                     target.rank, target.ranks, parameters, *compiled.program, target.batches);
  return compiled;
}

// Returns the rank of the first replica of each stage.
std::vector<int> first_ranks_of_stages(const TrainingTarget& target) {
  const Grid grid = grid_of(target.config.run, 0, target.ranks);
  std::vector<int> ranks;
  for (int stage = 0; stage < grid.stages; ++stage) ranks.push_back(grid.rank_of(stage, 0));
  return ranks;
}

bool fits(const TrainingTarget& target, const BatchPlan& batch, bool recomputes) {
  const RankMemory lower_bound =
      min_memory(target.config, target.graph, batch, target.backend.device().kind(), target.ranks);
  if (lower_bound.total() > target.limit) return false;
  for (const int rank : first_ranks_of_stages(target)) {
    TrainingTarget stage = target;
    stage.rank = rank;
    model::Parameters parameters;
    const TrainingProgram compiled = recomputes ? compile_training(stage, batch.passes, parameters)
                                                : compile(stage, batch, 0, parameters);
    if (compiled.memory.total() > target.limit) return false;
  }
  return true;
}

// Returns the smallest number of passes, from `fewest` to those of `smallest`, with which the plans
// of all ranks fit.
std::optional<int64_t> fewest_passes(const TrainingTarget& target, const BatchPlan& smallest,
                                     int64_t fewest, bool recomputes) {
  const auto fits_with = [&](int64_t passes) {
    return fits(target, with_passes(smallest, passes), recomputes);
  };
  // Doubles the passes until the plan fits, then searches between the last two.
  int64_t low = fewest - 1;
  int64_t high = fewest;
  while (!fits_with(high)) {
    if (high >= smallest.passes) return std::nullopt;
    low = high;
    high = std::min(2 * high, smallest.passes);
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits_with(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

int64_t choose_passes(const TrainingTarget& target) {
  const BatchPlan smallest = plan_batch(target.config, target.ranks);
  if (target.config.run.batch().micro() != kLargestMicro || target.limit == 0) {
    return smallest.passes;
  }
  Config unset = target.config;
  unset.run.mutable_batch()->clear_micro();
  const int64_t fewest = plan_batch(unset, target.ranks).passes;
  for (const bool recomputes : {false, true}) {
    if (const auto passes = fewest_passes(target, smallest, fewest, recomputes)) return *passes;
  }
  return smallest.passes;
}

std::unique_ptr<const model::Program> compile_whole(const TrainingTarget& target,
                                                    const BatchPlan& batch,
                                                    model::Parameters& parameters) {
  return model::Program::compile(target.graph, target.backend, training_options(target, batch),
                                 parameters);
}

bool accumulates(const Config& config, const BatchPlan& batch, Shard shard) {
  // With a pipeline, the first pass may add to the gradient of a parameter that another stage
  // writes.
  const bool adds = batch.passes > 1 || config.run.parallel().stages() > 1;
  return adds && !shard.has_gradients;
}

TrainingProgram compile_training(const TrainingTarget& target, int64_t passes,
                                 model::Parameters& parameters) {
  const BatchPlan batch = with_passes(plan_batch(target.config, target.ranks), passes);
  TrainingProgram plain = compile(target, batch, 0, parameters);
  const size_t needed = plain.memory.total();
  if (target.limit == 0 || needed <= target.limit) return plain;
  const Grid grid = grid_of(target.config.run, target.rank, target.ranks);
  const auto in_flight =
      static_cast<size_t>(micro_batches_in_flight(grid.stage, grid.stages, batch.passes));
  const size_t other = needed - in_flight * device_aligned(plain.program->activation_bytes());
  const size_t limit = target.limit > other ? (target.limit - other) / in_flight : 0;
  return compile(target, batch, std::max<size_t>(limit, 1), parameters);
}

TrainingProgram compile_largest_stage(const TrainingTarget& target, int64_t passes,
                                      model::Parameters& parameters) {
  TrainingProgram largest;
  for (const int rank : first_ranks_of_stages(target)) {
    TrainingTarget stage = target;
    stage.rank = rank;
    model::Parameters its;
    TrainingProgram compiled = compile_training(stage, passes, its);
    if (largest.program && compiled.memory.total() <= largest.memory.total()) continue;
    largest = std::move(compiled);
    parameters = std::move(its);
  }
  return largest;
}

std::unique_ptr<const model::Program> compile_shorter(const TrainingTarget& target,
                                                      const model::Graph& shorter,
                                                      const BatchPlan& batch,
                                                      size_t activation_bytes,
                                                      model::Parameters& parameters) {
  model::CompileOptions options = training_options(target, batch);
  options.activation_limit = activation_bytes;
  return model::Program::compile(shorter, target.backend, options, parameters);
}

int64_t repeated_operations(const model::Program& program) {
  const auto instructions = program.instructions();
  return std::ranges::count_if(instructions, &model::InstructionReport::repeats);
}

std::string recomputation_text(const model::Program& program) {
  int64_t forward = 0;
  double repeated_flops = 0;
  for (const model::InstructionReport& instruction : program.instructions()) {
    forward += instruction.forward;
    if (instruction.repeats()) repeated_flops += instruction.flops;
  }
  const int64_t repeated = repeated_operations(program);
  if (repeated == 0) return "";
  const double once = program.forward_flops() + program.backward_flops() - repeated_flops;
  return fmt::format(
      "{} of {} operations of the forward pass run again in the backward pass ({:.1f}% more "
      "floating-point operations)",
      repeated, forward, once > 0 ? 100 * repeated_flops / once : 0);
}

}  // namespace trireme::train
