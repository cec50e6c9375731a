#include "trainer/step/step_parts.h"

#include <utility>

#include "comm/control.h"
#include "core/alignment.h"
#include "trainer/step/rank_consistency.h"
#include "trainer/step/training_program.h"

namespace trireme::train {

StepParts::StepParts(const Config& its_config, const model::Graph& graph, ops::Backend& its_backend,
                     comm::Communicator& world, int loader_batches,
                     std::span<const model::Graph> shorter)
    : config(its_config), backend(its_backend), device(its_backend.device()) {
  communicator = connect_devices(config, world, device);
  stage.grid = grid_of(config.run, world.rank(), world.size());
  if (grid().has_pipeline()) {
    pipeline = std::make_unique<Pipeline>(world, *communicator, grid(), device);
    stage.links = &pipeline->links;
  }
  bucket_communicator = replicas().split(0, replicas().rank());
  shard = shard_of(config.run, world.rank(), world.size());
  programs = std::make_unique<StepPrograms>(config, graph, shorter, backend, world, *communicator,
                                            loader_batches);
  stage.stage = programs->stage;
  comm::together(world, [&] { create_slots(graph); });
  require_same_layout(world);
  in_flight = micro_batches_in_flight(grid().stage, grid().stages, plan().passes);
  if (pipeline) pipeline->connect(parameters(), device, *stream, program(), in_flight);
  comm::together(world, [&] { require_same_sums(); });
  const auto create_arrays = [&] {
    const size_t activation_bytes =
        static_cast<size_t>(in_flight) * device_aligned(programs->max_activation_bytes());
    arrays = std::make_unique<StepArrays>(parameters(), backend, activation_bytes,
                                          uses_ema(config.run.optimizer()),
                                          is_sharded() ? bucket_communicator.get() : nullptr);
  };
  if (is_sharded()) {
    create_arrays();  // all ranks together allocate the shards
  } else {
    comm::together(world, create_arrays);
  }
  sync = std::make_unique<GradientSync>(config.run.buckets(), *bucket_communicator, backend,
                                        parameters(), *stream, static_cast<int>(slots.size()),
                                        shard, program());
  model = arrays->model(sync->gradients().data());
  model.buckets = sync->bucket_memory();
  if (is_sharded()) read_arrays = sync->arrays_of(model.parameters, model.low_precision);
  add_state_arrays(world);
  add_programs(graph);
}

// Stages have different parameters, so ranks are compared with those of the same stage.
void StepParts::require_same_layout(comm::Communicator& world) const {
  if (!pipeline) return require_same_properties(world, layout_properties(parameters()));
  comm::together(world, [&] {
    require_same_properties(*pipeline->host_replicas, layout_properties(parameters()));
  });
}

// The copies of a parameter in several stages are in different buckets.
void StepParts::require_same_sums() const {
  if (!is_sharded() || !pipeline || !pipeline->has_shared_gradients()) return;
  if (config.run.buckets().precision() == FP32) return;
  throw ConfigError(config.where("buckets.precision"),
                    "must be FP32 with parallel.shard if stages share weights: their copies would "
                    "get different gradients");
}

void StepParts::create_slots(const model::Graph& graph) {
  stream = device.create_stream(StreamKind::kCompute);
  copies = device.create_stream(StreamKind::kCopy);
  const ModelRanks ranks{.shards = is_sharded() ? &replicas() : nullptr,
                         .stages = pipeline ? pipeline->stages.get() : nullptr,
                         .stage = grid().stage};
  optimizer = std::make_unique<Optimizer>(config.run, parameters(), backend, shard, ranks);
  const SampleSize sample{graph.input.input.bytes(), graph.input.target.bytes(),
                          graph.input.labels_per_sample()};
  input_bytes = static_cast<size_t>(plan().capacity) * sample.input;
  carried = std::make_unique<CarriedStates>(program(), device, plan().capacity);
  for (int i = 0; i < steps_in_flight(device.kind()); ++i) {
    slots.push_back(std::make_unique<StepSlot>(i, device, plan(), sample,
                                               parameters().running_stat_bytes(),
                                               carried->current().bytes(), !pipeline));
  }
}

// Gradients that ranks have sums of parts of are not among the tensors.
void StepParts::add_state_arrays(comm::Communicator& world) {
  model::ModelArrays shown = model;
  if (is_sharded()) shown.gradients = nullptr;
  state = std::make_unique<StateArrays>(parameters(), backend, shown);
  for (const Optimizer::StateArray& array : optimizer->state()) {
    if (is_sharded()) {
      state->add_shard(parameters(), array.name, array.values.data(), shard);
    } else {
      state->add_optimizer_array(parameters(), array.name, array.values.data());
    }
  }
  if (void* averages = arrays->averages().data()) {
    state->add_optimizer_array(parameters(), kAveragePrefix, averages);
  }
  const bool has_rows = has_carried() && world.size() > 1;
  carried->add_to(*state, plan().global,
                  data::share_of(plan().global, grid().replica, grid().replicas), has_rows);
  if (pipeline || is_sharded() || has_rows) {
    const Buffer& work = arrays->activations();
    state->distribute(parameters(), world, *communicator, /*has_stages=*/pipeline != nullptr,
                      *stream, {work.data(), work.bytes()});
  }
}

void StepParts::add_programs(const model::Graph& graph) const {
  const Buffer& activations = arrays->activations();
  const std::span memory(activations.data(), activations.bytes());
  for (const auto& slot : slots) {
    slot->add_program(program(), graph.input.input.bytes(), model, memory, in_flight, *carried);
    for (const StepPrograms::Shorter& other : programs->shorter) {
      slot->add_program(*other.program, static_cast<size_t>(other.length) * sizeof(int32_t), model,
                        memory, in_flight, *carried);
    }
  }
}

double StepParts::flops(const data::Batch& batch) const {
  const model::Program& its = programs->numbered(programs->number_of(batch.length));
  const int64_t passes = plan().passes_of(batch.global_rows, grid().replicas);
  return static_cast<double>(passes) * (its.forward_flops() + its.backward_flops());
}

StepMemory StepParts::memory_bytes() const {
  StepMemory memory;
  memory.parameters = arrays->parameter_bytes();
  memory.gradients = sync->gradients().bytes() + program().bucket_bytes();
  memory.optimizer = optimizer->state_bytes();
  memory.activations = arrays->activations().bytes() + carried->current().bytes();
  if (pipeline) memory.activations += pipeline->exchange->bytes();
  for (const auto& slot : slots) {
    memory.parameters += slot->running_stats_before.bytes();
    memory.activations += slot->states_before.bytes();
    memory.batches += slot->batch_bytes();
  }
  return memory;
}

}  // namespace trireme::train
