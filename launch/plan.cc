#include "launch/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "core/text.h"
#include "model/context.h"
#include "trainer/config/device.h"
#include "trainer/config/loading.h"
#include "trainer/optimizer/optimizer.h"

namespace trireme::cli {
namespace {

// Returns the number of batches in memory. On a CPU these include the batches that the loader
// prefetches.
int batches_of(const RankPlan& plan, const Target& target, comm::Communicator& alone) {
  const DeviceKind kind = plan.device->kind();
  if (kind != DeviceKind::kCpu) return train::steps_in_flight(kind);
  const int threads = train::loader_threads(target.config, target.in_memory,
                                            train::spare_cores(target.config, alone, *plan.device));
  return train::batches_in_memory(target.config, threads);
}

}  // namespace

std::string target_text(const data::SampleSpec& samples) {
  return samples.classes > 0 ? fmt::format("{} classes", samples.classes)
                             : "target " + samples.target.to_string();
}

std::string bytes_text(size_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::unique_ptr<RankPlan> plan_rank(const Target& target, const model::Graph& graph, int ranks,
                                    int local_ranks) {
  const train::Config& config = target.config;
  auto plan = std::make_unique<RankPlan>();
  const auto alone = comm::create_local_communicator();
  plan->device = train::create_device(config, *alone);
  plan->budget = train::memory_budget_of(*plan->device, local_ranks);
  plan->backend = train::create_backend(config, *plan->device);
  plan->ranks = ranks;
  plan->batches = batches_of(*plan, target, *alone);
  const DeviceKind kind = plan->device->kind();
  train::require_fits(
      config, train::min_memory(config, graph, train::plan_batch(config, ranks), kind, ranks),
      plan->budget);
  const train::TrainingTarget wanted{
      config,       graph, *plan->backend, ranks, train::memory_limit(config, plan->budget),
      plan->batches};
  model::Parameters& parameters = plan->parameters;
  train::TrainingProgram compiled =
      train::compile_training(wanted, train::choose_passes(wanted), parameters);
  plan->batch = compiled.batch;
  plan->program = std::move(compiled.program);
  plan->memory = std::move(compiled.memory);
  const OptimizerConfig& optimizer = config.run.optimizer();
  const size_t arrays = train::optimizer_state_names(optimizer).size() + train::uses_ema(optimizer);
  plan->checkpoint_bytes = parameters.array_bytes() + parameters.running_stat_bytes() +
                           arrays * parameters.trained_bytes();
  return plan;
}

namespace {

// Measures the instructions that run again.
class RepeatedTimer final : public model::InstructionObserver {
 public:
  explicit RepeatedTimer(const model::Program& program) : instructions_(program.instructions()) {}

  void before(size_t instruction, Stream& stream) override {
    if (!instructions_[instruction].repeats) return;
    stream.synchronize();
    begin_ = std::chrono::steady_clock::now();
  }
  void after(size_t instruction, Stream& stream) override {
    if (!instructions_[instruction].repeats) return;
    stream.synchronize();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  double take_seconds() { return std::exchange(seconds_, 0); }

 private:
  std::vector<model::InstructionReport> instructions_;
  std::chrono::steady_clock::time_point begin_;
  double seconds_ = 0;
};

}  // namespace

double measure_recomputation(const RankPlan& plan, const model::Graph& graph) {
  constexpr size_t kPasses = 5;
  Device& device = *plan.device;
  const model::Parameters& parameters = plan.parameters;
  const auto stream = device.create_stream(StreamKind::kCompute);
  const auto zeros = [&](size_t bytes) {
    Buffer buffer = device.allocate(bytes);
    device.fill_zero(buffer.data(), bytes, *stream);
    return buffer;
  };
  const Buffer values = zeros(parameters.array_bytes());
  const Buffer gradients = zeros(parameters.trained_bytes());
  const Buffer buckets = zeros(plan.program->bucket_bytes());
  const Buffer running_stats = zeros(parameters.running_stat_bytes());
  const Buffer activations = zeros(plan.program->activation_bytes());
  const auto rows = static_cast<size_t>(plan.batch.micro);
  const Buffer inputs = zeros(rows * graph.input.input.bytes());
  const Buffer targets = zeros(rows * graph.input.target.bytes());
  const Buffer state = zeros(sizeof(ops::StepState));
  stream->synchronize();
  model::LowPrecisionCopy low_precision(parameters, *plan.backend);
  model::initialize(parameters, *plan.backend, /*seed=*/1, values.data(), running_stats.data());
  low_precision.refresh(values.data(), *stream);
  ops::StepState step;
  step.valid_rows = static_cast<int32_t>(plan.batch.micro);
  device.copy(state.data(), &step, sizeof step, *stream);
  model::Context context(*plan.program,
                         {.parameters = values.data(),
                          .low_precision = low_precision.data(),
                          .gradients = gradients.data(),
                          .buckets = buckets.data(),
                          .running_stats = running_stats.data()},
                         activations.data());
  context.bind_batch(inputs.data(), targets.data(), state.as<ops::StepState>());
  RepeatedTimer timer(*plan.program);
  context.observe(&timer);
  std::array<double, kPasses> seconds{};
  for (double& pass : seconds) {
    context.forward(*stream);
    context.backward(*stream, {});
    stream->synchronize();
    pass = timer.take_seconds();
  }
  std::ranges::sort(seconds);
  return seconds[kPasses / 2];
}

train::TrainingProgram plan_choice(const Target& target, const model::Graph& graph,
                                   const RankPlan& plan, size_t limit, int rank) {
  model::Parameters parameters;
  return train::compile_training({.config = target.config,
                                  .graph = graph,
                                  .backend = *plan.backend,
                                  .ranks = plan.ranks,
                                  .limit = limit,
                                  .batches = plan.batches,
                                  .rank = rank},
                                 plan.batch.passes, parameters);
}

std::string memory_problem(const train::Config& config, const RankPlan& plan) {
  try {
    train::require_fits(config, plan.memory, plan.budget);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace trireme::cli
