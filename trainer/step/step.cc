#include "trainer/step/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "comm/control.h"
#include "core/alignment.h"
#include "core/fault_point.h"
#include "core/profile_range.h"
#include "core/random.h"
#include "trainer/step/arrays.h"
#include "trainer/step/carried_states.h"
#include "trainer/step/gradient_sync.h"
#include "trainer/step/pipeline.h"
#include "trainer/step/pipeline_schedule.h"
#include "trainer/step/rank_consistency.h"
#include "trainer/step/slot.h"
#include "trainer/step/step_probe.h"
#include "trainer/step/step_programs.h"
#include "trainer/step/training_program.h"

namespace trireme::train {

struct Step::State {
  State(const Config& its_config, const model::Graph& graph, ops::Backend& its_backend,
        comm::Communicator& world, int loader_batches, std::span<const model::Graph> shorter)
      : config(its_config),
        backend(its_backend),
        device(its_backend.device()),
        seed(config.run.seed()),
        eager(config.run.train().eager()) {
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
    comm::together(world, [&] {
      const size_t activation_bytes =
          static_cast<size_t>(in_flight) * device_aligned(programs->max_activation_bytes());
      arrays = std::make_unique<StepArrays>(parameters(), backend, activation_bytes,
                                            uses_ema(config.run.optimizer()),
                                            shard.is_whole() ? nullptr : bucket_communicator.get());
    });
    sync = std::make_unique<GradientSync>(config.run.buckets(), *bucket_communicator, backend,
                                          parameters(), *stream, static_cast<int>(slots.size()),
                                          shard, program());
    model = arrays->model(sync->gradients().data());
    model.buckets = sync->bucket_memory();
    if (!shard.is_whole()) {
      read_arrays = sync->arrays_of(model.parameters, model.low_precision);
      wait_for_gathered = [this](int64_t begin) { sync->wait_for_gathered(begin); };
    }
    add_state_arrays(world);
    for (const auto& slot : slots) {
      const Buffer& activations = arrays->activations();
      const std::span memory(activations.data(), activations.bytes());
      slot->add_program(program(), graph.input.input.bytes(), model, memory, in_flight, *carried);
      for (const StepPrograms::Shorter& other : programs->shorter) {
        slot->add_program(*other.program, static_cast<size_t>(other.length) * sizeof(int32_t),
                          model, memory, in_flight, *carried);
      }
    }
    const comm::Group& group = communicator->placement().group;
    gpu_steps = std::make_unique<comm::LedgerGroup>(
        communicator->ledger(), comm::subgroup(group, name_hash("step on the GPU"), group.ranks));
  }

  // Stages have different parameters, so ranks are compared with those of the same stage.
  void require_same_layout(comm::Communicator& world) const {
    if (!pipeline) return require_same_properties(world, layout_properties(parameters()));
    comm::together(world, [&] {
      require_same_properties(*pipeline->host_replicas, layout_properties(parameters()));
    });
  }

  // Gradients that ranks have sums of parts of are not among the tensors.
  void add_state_arrays(comm::Communicator& world) {
    model::ModelArrays shown = model;
    if (!shard.is_whole()) shown.gradients = nullptr;
    state = std::make_unique<StateArrays>(parameters(), backend, shown);
    for (const Optimizer::StateArray& array : optimizer->state()) {
      if (shard.is_whole()) {
        state->add_optimizer_array(parameters(), array.name, array.values.data());
      } else {
        state->add_shard(parameters(), array.name, array.values.data(), shard);
      }
    }
    if (void* averages = arrays->averages().data()) {
      state->add_optimizer_array(parameters(), kAveragePrefix, averages);
    }
    const bool has_rows = has_carried() && world.size() > 1;
    carried->add_to(*state, plan().global,
                    data::share_of(plan().global, grid().replica, grid().replicas), has_rows);
    if (pipeline || !shard.is_whole() || has_rows) {
      const Buffer& work = arrays->activations();
      state->distribute(parameters(), world, *communicator, /*has_stages=*/pipeline != nullptr,
                        *stream, {work.data(), work.bytes()});
    }
  }

  const BatchPlan& plan() const { return programs->plan; }
  const model::Parameters& parameters() const { return programs->parameters; }
  const model::Program& program() const { return *programs->whole; }
  const Grid& grid() const { return stage.grid; }
  bool has_carried() const { return carried->current().bytes() > 0; }

  // Returns the ranks that compute the same layers for other samples.
  comm::Communicator& replicas() const { return pipeline ? *pipeline->replicas : *communicator; }

  double flops(const data::Batch& batch) const {
    const model::Program& its = programs->numbered(programs->number_of(batch.length));
    const int64_t passes = plan().passes_of(batch.global_rows, grid().replicas);
    return static_cast<double>(passes) * (its.forward_flops() + its.backward_flops());
  }

  void create_slots(const model::Graph& graph) {
    stream = device.create_stream(StreamKind::kCompute);
    copies = device.create_stream(StreamKind::kCopy);
    const ModelRanks ranks{.shards = shard.is_whole() ? nullptr : &replicas(),
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

  std::optional<StepResult> run(const data::Batch& batch, int64_t step, float learning_rate,
                                bool stop_requested) {
    const ProfileRange range("step");
    StepSlot& slot = slot_of(launched);
    slot.program = programs->number_of(batch.length);
    slot.step = step;
    slot.passes = plan().passes_of(batch.global_rows, grid().replicas);
    slot.fill_header(batch, seed, learning_rate, stop_requested);
    fault_point("inputs", step, {batch.inputs, input_bytes});
    load(slot, batch);
    carried->begin(batch, *stream);
    launch(slot);
    fault_point(
        "parameters", step,
        host_elements(device, arrays->parameters(), ops::kMetricCount, parameters().elements));
    ++launched;
    updated = true;
    if (slot.staged()) slot.loaded->synchronize();  // the caller may reuse the batch
    if (launched - collected < std::ssize(slots)) return std::nullopt;
    return collect();
  }

  StepSlot& slot_of(int64_t launch) const {
    return *slots[static_cast<size_t>(launch % std::ssize(slots))];
  }

  // Copies the step's header and batch to the device, concurrently with the step before.
  void load(StepSlot& slot, const data::Batch& batch) const {
    const ProfileRange range("batch to the device");
    if (probe) probe->copy_begins(slot.index, *copies);
    slot.load(batch, *copies);
    if (probe) probe->copy_ends(slot.index, *copies);
    copies->record(*slot.loaded);
    stream->wait(*slot.loaded);
  }

  // Queues the step. A slot's first step with a program is queued eagerly, so that libraries load
  // and choose their kernels; the second is recorded and replayed from then on. All ranks make the
  // same choice.
  void launch(StepSlot& slot) {
    slot.profiled = probe != nullptr;
    StepSlot::Variant& variant = slot.variant();
    const bool use_recording = slot.staged() && !eager && !slot.profiled &&
                               slot.passes == plan().passes && variant.runs > 0;
    if (use_recording && !variant.recording) {
      variant.recording = device.record(*stream, [&] { encode(slot); });
    }
    if (use_recording && variant.recording) {
      variant.recording->replay(*stream);
    } else {
      if (slot.profiled) probe->step_begins(slot.index, *stream);
      encode(slot);
    }
    stream->record(*slot.done);
    ++variant.runs;
  }

  // Queues or records the step: the calls are the same.
  void encode(StepSlot& slot) {
    sync->begin(slot.index);
    clear_gradients(slot);
    copy_array(device, slot.running_stats_before, arrays->running_stats(), *stream);
    copy_array(device, slot.states_before, carried->current(), *stream);
    if (!shard.is_whole()) sync->gather(read_arrays);
    if (pipeline) pipeline->exchange->begin(slot.passes);
    slot.timer.record(StepTimer::kPassesBegin, *stream);
    for_each_pass(
        slot, slot.profiled ? probe.get() : nullptr,
        [&](const model::Context& context, int64_t pass) { encode_forward(slot, context, pass); },
        [&](const model::Context& context, int64_t pass) { encode_backward(slot, context, pass); });
    slot.timer.record(StepTimer::kPassesEnd, *stream);
    enter(comm::Phase::kCommunication, slot);
    if (pipeline) pipeline->sum_shared_gradients(model.gradients, *stream);
    sync->finish();
    slot.timer.record(StepTimer::kSumsEnd, *stream);
    if (pipeline) {
      pipeline->exchange->end();
      pipeline->sum_metrics(model.gradients, *stream);
    }
    slot.timer.record(StepTimer::kStageSumsEnd, *stream);
    encode_update(slot);
    slot.timer.record(StepTimer::kUpdateEnds, *stream);
  }

  void clear_gradients(const StepSlot& slot) const {
    std::byte* const gradients = sync->gradients().data();
    if (accumulates(config, plan(), shard)) {
      device.fill_zero(gradients, parameters().trained_bytes(), *stream);
    }
    // A pass that overwrites gradients still adds to the metrics in front of them.
    device.copy(gradients, slot.header(), sizeof(StepSlot::Header), *stream);
  }

  // Calls `forward` or `backward` with the context and number of each micro-batch in the order of
  // the schedule. What crosses the cuts between stages is received before and sent after each.
  template <class Forward, class Backward>
  void for_each_pass(StepSlot& slot, StepProbe* observer, const Forward& forward,
                     const Backward& backward) const {
    for (const PipelineAction& pass : pipeline_schedule(grid().stage, grid().stages, slot.passes)) {
      model::Context& context = slot.pass(pass.micro_batch);
      context.observe(observer);
      if (observer) observer->pass_begins(pass.micro_batch);
      if (pipeline) pipeline->exchange->before(pass, context);
      if (pass.forward) {
        forward(context, pass.micro_batch);
      } else {
        backward(context, pass.micro_batch);
      }
      if (pipeline) pipeline->exchange->after(pass);
    }
  }

  void encode_forward(StepSlot& slot, const model::Context& context, int64_t pass) {
    const ProfileRange range("forward");
    slot.timer.record(StepTimer::kForwardBegins, pass, *stream);
    enter(comm::Phase::kForward, slot);
    fault_point("forward", slot.step);
    optimizer->encode_loss_scaling(*stream, slot.state(pass));
    context.forward(*stream, wait_for_gathered);
    if (!shard.is_whole()) sync->wait_for_gathered(0);
    slot.timer.record(StepTimer::kForwardEnds, pass, *stream);
  }

  void encode_backward(StepSlot& slot, const model::Context& context, int64_t pass) {
    const ProfileRange range("backward");
    sync->begin_pass(pass, slot.passes);
    slot.timer.record(StepTimer::kBackwardBegins, pass, *stream);
    enter(comm::Phase::kBackward, slot);
    // Buckets with gradients that other stages have parts of are summed after the last pass.
    const bool sums = !pipeline || !pipeline->has_shared_gradients();
    context.backward(*stream, sums ? sync->advance() : no_callback);
    slot.timer.record(StepTimer::kBackwardEnds, pass, *stream);
  }

  void encode_update(const StepSlot& slot) const {
    const ProfileRange range("update");
    enter(comm::Phase::kUpdate, slot);
    fault_point("update", slot.step);
    StepSlot::Results& results = slot.results();
    device.copy(&results.scale_before, optimizer->loss_scale(), sizeof(ops::LossScale), *stream);
    optimizer->encode(*stream, model, arrays->averages().data(), slot.state(0));
    device.copy(&results.metrics, model.gradients, sizeof results.metrics, *stream);
    device.copy(&results.scale_after, optimizer->loss_scale(), sizeof(ops::LossScale), *stream);
  }

  // Records the phase on the CPU. On a GPU the host only queues work, so the phase is unknown.
  void enter(comm::Phase phase, const StepSlot& slot) const {
    if (!slot.staged()) communicator->ledger().enter(phase, slot.step);
  }

  StepResult collect() {
    StepSlot& slot = slot_of(collected);
    wait_for(slot);
    ++collected;
    const StepSlot::Results& results = slot.results();
    StepResult result;
    result.step = slot.step;
    result.metrics = results.metrics;
    result.timings = slot.timer.timings(slot.passes);
    result.timings.communication = sync->seconds(slot.index);
    if (optimizer->scales_loss()) result.loss_scale = results.scale_after;
    result.gradient_scale =
        results.scale_before.scale * results.metrics[ops::kMetricWeight] / slot.labels();
    result.skipped_steps = results.scale_after.skipped;
    const bool skipped = results.scale_after.skipped > results.scale_before.skipped;
    result.not_finite = skipped && (results.scale_before.scale <= 1 ||
                                    !std::isfinite(results.metrics[ops::kMetricLoss]));
    if (skipped) restore_running_stats(slot);
    if (result.not_finite) restore_carried(slot);
    if (slot.profiled) result.timeline = timeline_of(slot);
    return result;
  }

  void wait_for(StepSlot& slot) const {
    if (!slot.staged()) return slot.done->synchronize();
    comm::Ledger& ledger = communicator->ledger();
    ledger.enter(comm::Phase::kForward, slot.step);
    ledger.set_detail(pipeline ? "passes, transfers, sums and update are queued on the GPU"
                               : "forward, backward, sums and update are queued on the GPU");
    gpu_steps->begin({"step on the GPU"});
    slot.done->synchronize();
    gpu_steps->end();
  }

  // Restores the running statistics before a skipped step, also in the copies of the other slots:
  // their steps started from the statistics that the skipped step had written.
  void restore_running_stats(const StepSlot& skipped) const {
    for (const auto& slot : slots) {
      if (slot.get() == &skipped) continue;
      copy_array(device, slot->running_stats_before, skipped.running_stats_before, *stream);
    }
    copy_array(device, arrays->running_stats(), skipped.running_stats_before, *stream);
  }

  // Restores the carried states before a step in which numbers were not finite, and those with
  // which the other slots' steps began.
  void restore_carried(const StepSlot& failed) const {
    for (const auto& slot : slots) {
      if (slot.get() == &failed) continue;
      copy_array(device, slot->states_before, failed.states_before, *stream);
    }
    copy_array(device, carried->current(), failed.states_before, *stream);
  }

  std::shared_ptr<const StepTimeline> timeline_of(const StepSlot& slot) const {
    auto timeline = std::make_shared<StepTimeline>(probe->timeline(slot.index));
    Event& first = probe->start_event(slot.index);
    slot.timer.add_to(*timeline, first, slot.passes);
    timeline->sums = sync->sums(first, slot.index);
    timeline->gathers = sync->gathers(first, slot.index);
    return timeline;
  }

  // Gathers all that other ranks have updated, which the forward pass reads only a part of.
  void gather_parameters() {
    if (shard.is_whole() || !std::exchange(updated, false)) return;
    gather(sync->arrays_of(model.parameters));
    if (model.low_precision) gather(read_arrays);
    if (void* averages = arrays->averages().data()) gather(sync->arrays_of(averages));
  }
  void gather(std::span<const comm::Bucketer::Array> gathered) {
    sync->gather(gathered);
    sync->wait_for_gathered(0);
  }

  std::optional<NotFinite> find_not_finite() {
    gather_parameters();
    StepSlot& slot = slot_of(collected - 1);
    slot.load_header(*stream);  // loss scaling has changed the device's copy
    clear_gradients(slot);
    sync->begin_without_sums();
    std::optional<NotFinite> found;
    const auto note = [&](int64_t pass, int64_t order,
                          std::optional<model::Context::NotFinite> first) {
      if (!first || found) return;
      found = {(pass << 40) + (order << 24) + first->instruction, std::move(first->what)};
    };
    if (pipeline) pipeline->exchange->begin(slot.passes);
    for_each_pass(
        slot, nullptr,
        [&](const model::Context& context, int64_t pass) {
          optimizer->encode_loss_scaling(*stream, slot.state(pass));
          note(pass, grid().stage, context.check_forward(device, *stream));
        },
        [&](const model::Context& context, int64_t pass) {
          const bool last = pass + 1 == slot.passes;
          note(pass, 2 * grid().stages - 1 - grid().stage,
               context.check_backward(device, *stream,
                                      last ? sync->advance_without_sums() : no_callback));
        });
    if (pipeline) pipeline->exchange->end();
    copy_array(device, arrays->running_stats(), slot.running_stats_before, *stream);
    copy_array(device, carried->current(), slot.states_before, *stream);
    stream->synchronize();
    return found;
  }

  std::optional<StepResult> finish() {
    std::optional<StepResult> last;
    while (collected < launched) last = collect();
    gather_parameters();
    stream->synchronize();  // other streams may read the restored running statistics
    return last;
  }

  const Config& config;
  ops::Backend& backend;
  Device& device;
  uint64_t seed;
  bool eager;
  std::unique_ptr<comm::Communicator> communicator;  // over this device's memory
  // A separate communicator, since buckets are summed concurrently with the layers' own
  // collectives.
  std::unique_ptr<comm::Communicator> bucket_communicator;
  PipelineStage stage;
  Shard shard;
  std::unique_ptr<const StepPrograms> programs;
  int64_t in_flight = 1;   // micro-batches
  size_t input_bytes = 0;  // of a batch
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Stream> copies;
  std::unique_ptr<Pipeline> pipeline;  // null if there is one stage
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<StepArrays> arrays;
  std::unique_ptr<CarriedStates> carried;
  std::unique_ptr<GradientSync> sync;
  model::ModelArrays model;
  std::unique_ptr<StateArrays> state;
  // Tells the ledger, for the watchdog, that the host waits for a step on the GPU.
  std::unique_ptr<comm::LedgerGroup> gpu_steps;
  // With ZeRO, the arrays of the parameters that the network reads, by bucket.
  std::vector<comm::Bucketer::Array> read_arrays;
  std::function<void(int64_t)> wait_for_gathered;
  bool updated = false;  // since parameters were gathered
  const std::function<void(int64_t)> no_callback;
  int64_t launched = 0;
  int64_t collected = 0;
  std::unique_ptr<StepProbe> probe;              // null if steps are not profiled
  std::vector<std::unique_ptr<StepSlot>> slots;  // destroyed first: recordings use the rest
};

Step::Step(const Config& config, const model::Graph& graph, ops::Backend& backend,
           comm::Communicator& world, int loader_batches, std::span<const model::Graph> shorter)
    : state_(std::make_unique<State>(config, graph, backend, world, loader_batches, shorter)) {}
Step::~Step() = default;

void Step::initialize() {
  State& s = *state_;
  s.optimizer->reset_state(*s.stream);
  s.carried->reset(*s.stream);
  s.arrays->initialize(s.seed, *s.stream);
}

void Step::parameters_changed() { state_->arrays->parameters_changed(*state_->stream); }
void Step::restart_averages() { state_->arrays->restart_averages(*state_->stream); }
void Step::averages_changed() { state_->arrays->averages_changed(*state_->stream); }

std::optional<StepResult> Step::run(const data::Batch& batch, int64_t step, float learning_rate,
                                    bool stop_requested) {
  return state_->run(batch, step, learning_rate, stop_requested);
}

std::optional<StepResult> Step::finish() { return state_->finish(); }

void Step::gather_parameters() {
  state_->gather_parameters();
  state_->stream->synchronize();
}

void Step::profile(bool on) {
  State& s = *state_;
  s.probe.reset();
  if (!on) return;
  s.probe = std::make_unique<StepProbe>(s.device, *s.stream, s.program(), s.plan().passes,
                                        static_cast<int>(s.slots.size()));
}

const StepProbe* Step::probe() const { return state_->probe.get(); }

std::optional<Step::NotFinite> Step::find_not_finite() { return state_->find_not_finite(); }

void Step::average_running_stats() {
  state_->arrays->average_running_stats(state_->replicas(), *state_->stream);
}

const BatchPlan& Step::plan() const { return state_->plan(); }

size_t Step::memory_limit() const { return state_->programs->limit; }

StepMemory Step::memory_bytes() const {
  const State& s = *state_;
  StepMemory memory;
  memory.parameters = s.arrays->parameter_bytes();
  memory.gradients = s.sync->gradients().bytes() + s.program().bucket_bytes();
  memory.optimizer = s.optimizer->state_bytes();
  memory.activations = s.arrays->activations().bytes() + s.carried->current().bytes();
  if (s.pipeline) memory.activations += s.pipeline->exchange->bytes();
  for (const auto& slot : s.slots) {
    memory.parameters += slot->running_stats_before.bytes();
    memory.activations += slot->states_before.bytes();
    memory.batches += slot->batch_bytes();
  }
  return memory;
}

const model::Parameters& Step::parameters() const { return state_->parameters(); }
const StateArrays& Step::state() const { return *state_->state; }
const model::ModelArrays& Step::arrays() const { return state_->model; }
model::ModelArrays Step::evaluation_arrays() const { return state_->arrays->evaluation_model(); }
std::span<std::byte> Step::activations() const {
  const Buffer& all = state_->arrays->activations();
  return {all.data(), all.bytes()};
}
Optimizer& Step::optimizer() { return *state_->optimizer; }
const model::Program& Step::program() const { return state_->program(); }
double Step::flops(const data::Batch& batch) const { return state_->flops(batch); }
std::span<const comm::Bucket> Step::buckets() const { return state_->sync->buckets(); }
std::span<const comm::Bucketer::Array> Step::gathered() const { return state_->read_arrays; }
Stream& Step::stream() { return *state_->stream; }
const PipelineStage& Step::stage() const { return state_->stage; }
comm::Communicator& Step::communicator() { return *state_->communicator; }
ops::Backend& Step::backend() { return state_->backend; }

}  // namespace trireme::train
