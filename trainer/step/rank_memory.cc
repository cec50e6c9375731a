#include "trainer/step/rank_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/control.h"
#include "core/alignment.h"
#include "core/text.h"
#include "data/bad_records.h"
#include "trainer/base/machine.h"
#include "trainer/base/process.h"
#include "trainer/config/device.h"
#include "trainer/config/grid.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/shard.h"
#include "trainer/step/carried_states.h"
#include "trainer/step/pipeline_schedule.h"
#include "trainer/step/stage_links.h"

namespace trireme::train {
namespace {

using Use = RankMemory::Use;

constexpr size_t kMaxBytes = size_t{1} << 60;  // upper limit of a part: sums must not overflow
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGpuLibraryBytes = 128 * kMiB;
// What a process on a CPU allocates after its plan was made and beyond it: code that oneDNN
// generates, stacks of threads, fragments. 17 MiB were measured; the resident set before also has
// 20 MiB of files, which the kernel can drop.
constexpr size_t kLaterBytes = 16 * kMiB;
// Addresses that a process reserves after its plan was made and beyond it, most of which it never
// uses: stacks of threads (8 MiB each), shared memory of MPI.
constexpr size_t kLaterAddresses = 256 * kMiB;
// What the process has is rounded up to a multiple, so that runs of the same configuration get the
// same plan.
constexpr size_t kProcessStep = 8 * kMiB;

RankMemory without_empty(RankMemory memory) {
  std::erase_if(memory.parts, [](const RankMemory::Part& part) { return part.bytes == 0; });
  return memory;
}

model::NetworkSize network_size(const Config& config, const model::Graph& graph, int64_t rows) {
  try {
    return size_of(graph, rows);
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

RankMemory::Part batches_part(const model::Graph& graph, const BatchPlan& batch, int batches) {
  const size_t sample = graph.input.input.bytes() + graph.input.target.bytes();
  size_t bytes = static_cast<size_t>(batch.capacity);
  for (size_t factor : {static_cast<size_t>(batches), sample}) {
    if (__builtin_mul_overflow(bytes, factor, &bytes)) bytes = kMaxBytes;
  }
  return {fmt::format("batches ({} of {} samples)", batches, batch.capacity),
          std::min(bytes, kMaxBytes), Use::kBatches};
}

std::string low_precision_name(const Config& config) {
  return "parameters in " + Precision_Name(config.run.train().precision());
}

size_t process_bytes(int64_t bytes) {
  return (static_cast<size_t>(bytes) / kProcessStep + 1) * kProcessStep;
}

// Returns the budget of a limited address space, which each process has for itself.
MemoryBudget address_budget(size_t limit, size_t checkpoint) {
  MemoryBudget budget{limit, "the limit of this process's address space (ulimit -v) is",
                      /*ranks=*/1, checkpoint};
  budget.unplanned = process_bytes(address_bytes()) + kLaterAddresses;
  budget.is_strict = true;
  return budget;
}

}  // namespace

size_t RankMemory::total() const {
  size_t bytes = 0;
  for (const RankMemory::Part& part : parts) bytes += part.bytes;
  return bytes;
}

size_t RankMemory::of(Use use) const {
  size_t bytes = 0;
  for (const RankMemory::Part& part : parts) bytes += part.use == use ? part.bytes : 0;
  return bytes;
}

size_t RankMemory::model() const {
  return of(Use::kParameters) + of(Use::kGradients) + of(Use::kOptimizer);
}

RankMemory min_memory(const Config& config, const model::Graph& graph, const BatchPlan& batch,
                      DeviceKind kind, int ranks) {
  RankMemory memory{
      .parts = {}, .network = network_size(config, graph, batch.micro), .is_lower_bound = true};
  const DType dtype = compute_dtype(config);
  const auto parameters = static_cast<size_t>(memory.network.parameters);
  const size_t trained = static_cast<size_t>(memory.network.trained) * sizeof(float);
  const size_t arrays = optimizer_state_names(config.run.optimizer()).size();
  const Shard shard = shard_of(config.run, 0, ranks);
  const auto shards = static_cast<size_t>(shard.count);
  // A stage may have few of the parameters.
  if (config.run.parallel().stages() > 1) return without_empty(std::move(memory));
  memory.parts = {
      {"parameters", parameters * sizeof(float)},
      {low_precision_name(config), dtype == DType::kF32 ? 0 : parameters * size_of(dtype)},
      {"averages of the parameters",
       uses_ema(config.run.optimizer()) ? parameters * sizeof(float) : 0},
      {"gradients", shard.has_gradients ? trained / shards : trained, Use::kGradients},
      {"optimizer state", arrays * trained / shards, Use::kOptimizer},
      {"activations", static_cast<size_t>(memory.network.largest_output) * size_of(dtype),
       Use::kWork},
      batches_part(graph, batch, steps_in_flight(kind))};
  return without_empty(std::move(memory));
}

RankMemory planned_memory(const Config& config, const model::Graph& graph, const BatchPlan& batch,
                          DeviceKind kind, int rank, int ranks, const model::Parameters& parameters,
                          const model::Program& program, int batches) {
  const Grid grid = grid_of(config.run, rank, ranks);
  const int64_t in_flight = micro_batches_in_flight(grid.stage, grid.stages, batch.passes);
  RankMemory memory{.parts = {}, .network = network_size(config, graph, batch.micro)};
  // Each step in flight has a copy of the running statistics and carried states from before it.
  const auto copies = static_cast<size_t>(1 + steps_in_flight(kind));
  const size_t low = parameters.low_precision() ? size_of(parameters.dtype) : 0;
  const size_t arrays = optimizer_state_names(config.run.optimizer()).size();
  const Shard shard = shard_of(config.run, 0, ranks);
  const size_t activations =
      static_cast<size_t>(in_flight) * device_aligned(program.activation_bytes());
  memory.parts = {
      {"parameters", parameters.array_bytes() + copies * parameters.running_stat_bytes()},
      {low_precision_name(config), static_cast<size_t>(parameters.elements) * low},
      {"averages of the parameters",
       uses_ema(config.run.optimizer())
           ? parameters.array_bytes() + static_cast<size_t>(parameters.elements) * low
           : 0},
      {"gradients",
       static_cast<size_t>(gradient_elements(parameters, shard)) * sizeof(float) +
           program.bucket_bytes(),
       Use::kGradients},
      {"optimizer state",
       sizeof(ops::LossScale) +
           arrays * sizeof(float) * static_cast<size_t>(slot_elements(parameters, shard)),
       Use::kOptimizer},
      {"saved for the backward pass", static_cast<size_t>(in_flight) * program.saved_bytes(),
       Use::kSaved},
      {"other activations, workspaces",
       activations - static_cast<size_t>(in_flight) * program.saved_bytes(), Use::kWork},
      {"carried states", copies * CarriedStates::bytes_of(program, batch.capacity)},
      {"exchanged with other stages", StageExchange::bytes_of(program, in_flight), Use::kWork},
      batches_part(graph, batch, reads_batches(config, program) ? batches : 0)};
  return without_empty(std::move(memory));
}

bool reads_batches(const Config& config, const model::Program& program) {
  return program.reads_samples() || data::bad_record_limit(config.run.data()).has_value();
}

size_t checkpoint_bytes(const Config& config, const model::NetworkSize& network) {
  const OptimizerConfig& optimizer = config.run.optimizer();
  const size_t arrays = optimizer_state_names(optimizer).size() + (uses_ema(optimizer) ? 1 : 0);
  return sizeof(float) *
         (static_cast<size_t>(network.parameters) + arrays * static_cast<size_t>(network.trained));
}

size_t MemoryBudget::of_rank() const {
  return (bytes - std::min(bytes, checkpoint)) / static_cast<size_t>(ranks);
}

MemoryBudget memory_budget_of(Device& device, int local_ranks, const Config& config,
                              const model::Graph& graph) {
  if (device.kind() == DeviceKind::kCpu) {
    const Machine machine = inspect_machine();
    const bool limited = machine.memory_limit < machine.memory;
    MemoryBudget budget{static_cast<size_t>(machine.memory_limit),
                        limited ? "the limit of this process's control group is" : "this host has",
                        local_ranks,
                        checkpoint_bytes(config, network_size(config, graph, /*rows=*/1))};
    // A host has other processes, too.
    budget.unplanned =
        process_bytes(resident_bytes()) + kLaterBytes + budget.of_rank() / (limited ? 128 : 16);
    if (machine.address_space == 0) return budget;
    MemoryBudget own =
        address_budget(static_cast<size_t>(machine.address_space), budget.checkpoint);
    return own.of_plan() < budget.of_plan() ? own : budget;
  }
  const auto load = device.load();
  MemoryBudget budget{load ? static_cast<size_t>(load->memory_total_bytes) : 0, "the GPU has"};
  budget.unplanned = kGpuLibraryBytes + budget.of_rank() / 16;
  return budget;
}

size_t MemoryBudget::of_plan() const {
  const size_t limit = is_strict ? of_rank() : of_rank() / 2;
  return std::max<size_t>(1, of_rank() - std::min(unplanned, limit));
}

size_t memory_limit(const Config& config, const MemoryBudget& budget) {
  const MemoryConfig& memory = config.run.memory();
  if (!memory.has_limit_bytes()) return budget.bytes == 0 ? 0 : budget.of_plan();
  const auto limit = static_cast<size_t>(memory.limit_bytes());
  return budget.bytes == 0 ? limit : std::min(limit, std::max<size_t>(1, budget.of_rank()));
}

size_t smallest_limit(comm::Communicator& communicator, size_t own) {
  return static_cast<size_t>(-comm::max(communicator, -static_cast<int64_t>(own)));
}

}  // namespace trireme::train
