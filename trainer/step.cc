#include "trainer/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "comm/control.h"
#include "comm/device_communicator.h"
#include "core/alignment.h"
#include "core/fault_point.h"
#include "core/profile_range.h"
#include "trainer/agreement.h"
#include "trainer/conversion.h"
#include "trainer/device.h"
#include "trainer/profile/step_probe.h"
#include "trainer/rank_memory.h"

namespace trireme {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Where buckets may end: the gradients' beginnings, padding in front of them belongs to the one
// before.
std::vector<int64_t> bucket_ends(const Parameters& parameters) {
  std::vector<int64_t> ends;
  for (const Parameter& parameter : parameters.all) {
    const bool inside =
        parameter.begin > kMetricCount && parameter.begin < parameters.trained_elements;
    if (inside) ends.push_back(parameter.begin);
  }
  ends.push_back(parameters.trained_elements);
  std::sort(ends.begin(), ends.end());
  return ends;
}

// "layer3.0.conv1.weight ... layer3.2.bn3.bias": from the first to the last gradient in each.
std::vector<std::string> bucket_names(const Parameters& parameters,
                                      std::span<const Bucket> buckets) {
  std::vector<std::string> names;
  for (const Bucket& bucket : buckets) {
    const Parameter* first = nullptr;
    const Parameter* last = nullptr;
    for (const Parameter& parameter : parameters.all) {
      if (parameter.begin < bucket.begin || parameter.begin >= bucket.end) continue;
      if (!first || parameter.begin < first->begin) first = &parameter;
      if (!last || parameter.begin > last->begin) last = &parameter;
    }
    if (!first) {
      names.emplace_back();
    } else {
      names.push_back(first == last ? first->name
                                    : fmt::format("{} ... {}", first->name, last->name));
    }
  }
  return names;
}

}  // namespace

BatchPlan plan_batch(const Config& config, int ranks) {
  const BatchConfig& batch = config.run.batch();
  if (batch.global() < ranks) {
    throw ConfigError(
        config.where("batch.global"),
        fmt::format("{} samples cannot be shared by {} ranks; use at least {} or fewer ranks",
                    batch.global(), ranks, ranks));
  }
  const int64_t share = ceil_div(batch.global(), ranks);
  BatchPlan plan;
  plan.global = batch.global();
  plan.passes = batch.has_micro() ? ceil_div(share, std::min(batch.micro(), share)) : 1;
  plan.micro = ceil_div(share, plan.passes);
  plan.capacity = plan.micro * plan.passes;
  return plan;
}

struct Step::State {
  // What one step in flight reads and writes beside the model. Addresses are fixed, so that a
  // recording of the step can be replayed.
  struct Slot {
    Slot(int its_index, Device& device, const BatchPlan& plan, size_t input_bytes,
         size_t target_bytes, size_t running_bytes)
        : index(its_index), loaded(device.create_event()), done(device.create_event()) {
      const size_t bytes = sizeof(Head) + static_cast<size_t>(plan.passes) * sizeof(StepState);
      host_head = device.allocate_host(bytes);
      head = device.allocate(bytes);
      host_tail = device.allocate_host(sizeof(Tail));
      running_before = device.allocate(running_bytes);
      for (int64_t i = 0; i < 2 * plan.passes + 3; ++i) {
        marks.push_back(device.create_event(EventKind::kTimed));
      }
      if (device.kind() == DeviceKind::kCpu) return;
      const auto bytes_of_passes = [&](size_t sample_bytes) {
        return static_cast<size_t>(plan.passes) *
               device_aligned(static_cast<size_t>(plan.micro) * sample_bytes);
      };
      inputs = device.allocate(bytes_of_passes(input_bytes));
      targets = device.allocate(bytes_of_passes(target_bytes));
    }

    StepState* host_state(int64_t pass) const { return states(host_head) + pass; }
    StepState* state(int64_t pass) const { return states(head) + pass; }

    // What the host tells the step...
    struct Head {
      std::array<float, kMetricCount> metrics;  // that the sums begin with
    };
    // ...and the step tells the host.
    struct Tail {
      std::array<float, kMetricCount> metrics;
      LossScale scale_before, scale_after;
    };
    int index;
    Buffer host_head, head;  // a Head, then a StepState for each pass
    Buffer host_tail;
    // Of each pass, aligned; not on the CPU, which reads the batch where it is.
    Buffer inputs, targets;
    const std::byte* read_inputs = nullptr;
    const std::byte* read_targets = nullptr;
    Buffer running_before;  // the step: its running values
    std::unique_ptr<Event> loaded;
    std::unique_ptr<Event> done;
    // Beginning and middle of each pass, end of the last, end of sums, end of the update.
    std::vector<std::unique_ptr<Event>> marks;
    std::vector<Context> contexts;  // of the passes
    std::unique_ptr<Recording> recording;
    int64_t runs = 0;
    int64_t passes = 0;  // of the step in flight
    int64_t step = 0;
    bool probed = false;  // the step in flight

   private:
    static StepState* states(const Buffer& buffer) {
      return reinterpret_cast<StepState*>(buffer.data() + sizeof(Head));
    }
  };

  State(const Config& config, const Graph& graph, Backend& its_backend, Communicator& world)
      : backend(its_backend),
        device(its_backend.device()),
        seed(config.run.seed()),
        eager(config.run.train().eager()) {
    const Transport transport = transport_of(config);
    communicator = create_device_communicator(world, device, transport);
    together(world, [&] {
      plan = plan_batch(config, world.size());
      compile(config, graph);
    });
    require_alike(world, layout_facts(parameters));
    // Sums of buckets run beside what layers say to each other, so they have a communicator of
    // their own.
    bucket_communicator = communicator->split(0, communicator->rank());
    gradients = bucket_communicator->allocate(parameters.trained_bytes());
    together(world, [&] { bind(); });
    const BucketConfig& buckets = config.run.buckets();
    bucketer = std::make_unique<Bucketer>(
        *bucket_communicator, device, *stream, gradients.data(), DType::kF32,
        cut_buckets(bucket_ends(parameters), DType::kF32,
                    {buckets.first_bytes(), buckets.bytes(), buckets.last_bytes()}),
        wire(buckets), static_cast<int>(slots.size()), buckets.sum_on_one_rank());
    device_lane = communicator->ledger().add_lane();
    communicator->ledger().name_buckets(bucket_names(parameters, bucketer->buckets()));
    advance = [this](int64_t final_end) {
      gradients_final(final_end);
      bucketer->advance(final_end);
    };
  }

  ~State() {
    slots.clear();  // recordings use all the rest
    bucketer.reset();
    gradients = Buffer();
  }

  // Gradients as they travel.
  Wire wire(const BucketConfig& buckets) {
    if (buckets.precision() == FP32) return {};
    const DType dtype = buckets.precision() == BF16 ? DType::kBF16 : DType::kF16;
    narrow = std::make_unique<Conversion>(backend, DType::kF32, dtype);
    widen = std::make_unique<Conversion>(backend, dtype, DType::kF32);
    const auto through = [](Conversion& conversion) {
      return [&](const void* from, void* to, int64_t elements, Stream& on) {
        conversion.encode(from, to, elements, on);
      };
    };
    return {dtype, through(*narrow), through(*widen)};
  }

  void compile(const Config& config, const Graph& graph) {
    stream = device.create_stream(StreamKind::kCompute);
    copies = device.create_stream(StreamKind::kCopy);
    CompileOptions options;
    options.batch = plan.micro;
    options.accumulate = plan.passes > 1;
    options.dtype = compute_dtype(config);
    options.collective = communicator->size() > 1 ? communicator.get() : nullptr;
    const Room room = room_of(device);
    const bool cpu = device.kind() == DeviceKind::kCpu;
    const int sharing = cpu ? communicator->placement().local_ranks : 1;
    require_room(config, least_memory(config, graph, plan, device.kind()), room, sharing);
    program = Program::compile(graph, backend, options, parameters);
    require_room(config,
                 planned_memory(config, graph, plan, device.kind(), parameters, *program,
                                steps_under_way(device.kind())),
                 room, sharing);
    optimizer = std::make_unique<Optimizer>(config.run, parameters, backend);
    input_bytes = graph.input.input.bytes();
    target_bytes = graph.input.target.bytes();
    values = device.allocate(parameters.array_bytes());
    low_precision = LowPrecisionCopy(parameters, backend);
    running = device.allocate(parameters.running_bytes());
    activations = device.allocate(program->activation_bytes());
    for (int i = 0; i < steps_under_way(device.kind()); ++i) {
      slots.push_back(std::make_unique<Slot>(i, device, plan, input_bytes, target_bytes,
                                             parameters.running_bytes()));
    }
  }

  void bind() {
    arrays = {.parameters = values.data(),
              .low_precision = low_precision.data(),
              .gradients = gradients.data(),
              .running = running.data()};
    for (const auto& slot : slots) {
      slot->contexts.assign(static_cast<size_t>(plan.passes),
                            Context(*program, arrays, activations.data()));
    }
  }

  // --- Before the step: what it is about goes to the device, beside the step before.

  void describe(Slot& slot, const Batch& batch, float learning_rate, bool stop_requested) const {
    auto& head = *slot.host_head.as<Slot::Head>();
    head.metrics.fill(0);
    head.metrics[kMetricStopRequests] = stop_requested ? 1 : 0;
    for (int64_t pass = 0; pass < plan.passes; ++pass) {
      const int64_t before = pass * plan.micro;
      StepState state;
      state.step = slot.step;
      state.seed = seed;
      state.first_sample = batch.first_row + before;
      state.valid_rows =
          static_cast<int32_t>(std::clamp<int64_t>(batch.rows - before, 0, plan.micro));
      state.learning_rate = learning_rate;
      state.loss_gradient_scale = 1.0f / static_cast<float>(batch.global_rows);
      *slot.host_state(pass) = state;
    }
  }

  void load(Slot& slot, const Batch& batch) const {
    const ProfileRange range("batch to the device");
    if (probe) probe->copy_begins(slot.index, *copies);
    device.copy(slot.head.data(), slot.host_head.data(), slot.head.bytes(), *copies);
    if (slot.inputs.data()) {
      copy_passes(slot.inputs, batch.inputs, input_bytes);
      copy_passes(slot.targets, batch.targets, target_bytes);
    }
    if (probe) probe->copy_ends(slot.index, *copies);
    copies->record(*slot.loaded);
    stream->wait(*slot.loaded);
  }

  void copy_passes(const Buffer& to, const std::byte* from, size_t sample_bytes) const {
    const size_t bytes = static_cast<size_t>(plan.micro) * sample_bytes;
    for (size_t pass = 0; pass < static_cast<size_t>(plan.passes); ++pass) {
      device.copy(to.data() + pass * device_aligned(bytes), from + pass * bytes, bytes, *copies);
    }
  }

  // --- The step itself: the same calls, whether they are run or recorded.

  void encode(Slot& slot) {
    bucketer->use_events(slot.index);
    final_before = kMetricCount;
    size_t next_mark = 0;
    const auto mark = [&] { stream->record(*slot.marks[next_mark++]); };
    clear_gradients(slot);
    copy_running(slot.running_before, running);
    for (int64_t pass = 0; pass < slot.passes; ++pass) {
      Context& context = bound(slot, pass);
      context.observe(slot.probed ? probe.get() : nullptr);
      if (slot.probed) probe->pass_begins(pass);
      mark();
      {
        const ProfileRange range("forward");
        enter(Phase::kForward, slot);
        fault_point("forward", slot.step);
        optimizer->encode_before(*stream, slot.state(pass));
        context.forward(*stream);
      }
      mark();
      const ProfileRange range("backward");
      enter(Phase::kBackward, slot);
      context.backward(*stream, pass + 1 == slot.passes ? advance : nothing);
    }
    mark();
    enter(Phase::kCommunication, slot);
    bucketer->finish();
    mark();
    const ProfileRange range("update");
    enter(Phase::kUpdate, slot);
    fault_point("update", slot.step);
    auto& tail = *slot.host_tail.as<Slot::Tail>();
    device.copy(&tail.scale_before, optimizer->loss_scale(), sizeof(LossScale), *stream);
    optimizer->encode(*stream, arrays.parameters, arrays.low_precision, arrays.gradients,
                      slot.state(0));
    device.copy(&tail.metrics, gradients.data(), sizeof tail.metrics, *stream);
    device.copy(&tail.scale_after, optimizer->loss_scale(), sizeof(LossScale), *stream);
    mark();
  }

  void clear_gradients(const Slot& slot) const {
    if (plan.passes > 1) device.fill_zero(gradients.data(), parameters.trained_bytes(), *stream);
    // A pass that overwrites gradients still adds to the metrics in front of them.
    device.copy(gradients.data(), slot.head.data(), sizeof(Slot::Head), *stream);
  }

  // The context of a pass, bound to its rows of the batch.
  Context& bound(Slot& slot, int64_t pass) const {
    const auto offset = [&](size_t sample_bytes) {
      const size_t bytes = static_cast<size_t>(plan.micro) * sample_bytes;
      return static_cast<size_t>(pass) * (slot.inputs.data() ? device_aligned(bytes) : bytes);
    };
    Context& context = slot.contexts[static_cast<size_t>(pass)];
    context.bind_batch(slot.read_inputs + offset(input_bytes),
                       slot.read_targets + offset(target_bytes), slot.state(pass));
    return context;
  }

  // From where the last call ended.
  void gradients_final(int64_t end) {
    fault_point("gradients", final_before, host_memory(gradients, final_before, end));
    final_before = end;
  }

  // Elements of an array where the host can reach them.
  std::span<std::byte> host_memory(const Buffer& array, int64_t begin, int64_t end) const {
    if (device.kind() != DeviceKind::kCpu) return {};
    return {array.data() + begin * 4, static_cast<size_t>(end - begin) * 4};
  }

  // The CPU is where the host is. What a GPU is at, only its queue knows.
  void enter(Phase phase, const Slot& slot) const {
    if (!slot.inputs.data()) communicator->ledger().enter(phase, slot.step);
  }

  // The first time everything is loaded and chosen that is left to the first use; then a whole step
  // is recorded. All ranks come here alike.
  void launch(Slot& slot, const Batch& batch) {
    const bool staged = slot.inputs.data() != nullptr;
    slot.read_inputs = staged ? slot.inputs.data() : batch.inputs;
    slot.read_targets = staged ? slot.targets.data() : batch.targets;
    slot.probed = probe != nullptr;
    const bool records =
        staged && !eager && !slot.probed && slot.passes == plan.passes && slot.runs > 0;
    if (records && !slot.recording) {
      slot.recording = device.record(*stream, [&] { encode(slot); });
    }
    if (records && slot.recording) {
      slot.recording->replay(*stream);
    } else {
      if (slot.probed) probe->step_begins(slot.index, *stream);
      encode(slot);
    }
    stream->record(*slot.done);
    ++slot.runs;
  }

  std::optional<StepResult> run(const Batch& batch, int64_t step, float learning_rate,
                                bool stop_requested) {
    const ProfileRange range("step");
    Slot& slot = *slots[static_cast<size_t>(launched % std::ssize(slots))];
    slot.step = step;
    // The same on all ranks, however few rows this one has: layers may wait for each other.
    slot.passes = ceil_div(ceil_div(batch.global_rows, communicator->size()), plan.micro);
    describe(slot, batch, learning_rate, stop_requested);
    fault_point("inputs", step, {batch.inputs, static_cast<size_t>(plan.capacity) * input_bytes});
    load(slot, batch);
    launch(slot, batch);
    fault_point("parameters", step, host_memory(values, kMetricCount, parameters.elements));
    ++launched;
    if (slot.inputs.data()) slot.loaded->synchronize();  // the batch may go
    if (launched - collected < std::ssize(slots)) return std::nullopt;
    return collect();
  }

  // --- After the step.

  StepResult collect() {
    Slot& slot = *slots[static_cast<size_t>(collected % std::ssize(slots))];
    wait_for(slot);
    ++collected;
    const auto& tail = *slot.host_tail.as<Slot::Tail>();
    StepResult result;
    result.step = slot.step;
    result.metrics = tail.metrics;
    result.timings = timings_of(slot);
    if (optimizer->scales_loss()) result.loss_scale = tail.scale_after;
    result.gradient_scale = tail.scale_before.scale;
    result.skipped_steps = tail.scale_after.skipped;
    const bool skipped = tail.scale_after.skipped > tail.scale_before.skipped;
    result.not_finite =
        skipped && (tail.scale_before.scale <= 1 || !std::isfinite(tail.metrics[kMetricLoss]));
    if (skipped) put_back_running_values(slot);
    if (slot.probed) result.timeline = std::make_shared<StepTimeline>(timeline_of(slot));
    return result;
  }

  // A step under way has begun with values that were spoiled already.
  void put_back_running_values(const Slot& skipped) const {
    for (const auto& slot : slots) {
      if (slot.get() != &skipped) copy_running(slot->running_before, skipped.running_before);
    }
    copy_running(running, skipped.running_before);
  }

  void copy_running(const Buffer& to, const Buffer& from) const {
    if (from.bytes() > 0) device.copy(to.data(), from.data(), from.bytes(), *stream);
  }

  std::optional<NotFinite> find_not_finite() {
    Slot& slot = *slots[static_cast<size_t>((collected - 1) % std::ssize(slots))];
    // The device's copy was changed where the loss is scaled.
    device.copy(slot.head.data(), slot.host_head.data(), slot.head.bytes(), *stream);
    clear_gradients(slot);
    final_before = kMetricCount;
    const std::function<void(int64_t)> is_final = [this](int64_t end) { gradients_final(end); };
    std::optional<NotFinite> found;
    for (int64_t pass = 0; pass < slot.passes; ++pass) {
      Context& context = bound(slot, pass);
      context.observe(nullptr);
      optimizer->encode_before(*stream, slot.state(pass));
      auto first =
          context.first_not_finite(device, *stream, pass + 1 == slot.passes ? is_final : nothing);
      if (first && !found) found = {(pass << 32) + first->instruction, std::move(first->what)};
    }
    copy_running(running, slot.running_before);
    stream->synchronize();
    return found;
  }

  void wait_for(Slot& slot) const {
    if (!slot.inputs.data()) return slot.done->synchronize();
    Ledger& ledger = communicator->ledger();
    ledger.enter(Phase::kForward, slot.step);
    ledger.detail("forward, backward, sums and update are queued on the GPU");
    ledger.begin(device_lane, "step on the GPU", 0, -1);
    slot.done->synchronize();
    ledger.end(device_lane);
  }

  StepTimings timings_of(const Slot& slot) const {
    const auto between = [&](int64_t from, int64_t to) {
      return device.seconds_between(*slot.marks[static_cast<size_t>(from)],
                                    *slot.marks[static_cast<size_t>(to)]);
    };
    StepTimings timings;
    for (int64_t pass = 0; pass < slot.passes; ++pass) {
      timings.forward += between(2 * pass, 2 * pass + 1);
      timings.backward += between(2 * pass + 1, 2 * pass + 2);
    }
    const int64_t end = 2 * slot.passes;
    timings.exposed = between(end, end + 1);
    timings.update = between(end + 1, end + 2);
    timings.communication = bucketer->communication_seconds(slot.index);
    return timings;
  }

  StepTimeline timeline_of(const Slot& slot) const {
    StepTimeline timeline = probe->timeline(slot.index);
    Event& first = probe->first_moment(slot.index);
    const auto between = [&](int64_t from, int64_t to) {
      return TimeSpan{device.seconds_between(first, *slot.marks[static_cast<size_t>(from)]),
                      device.seconds_between(first, *slot.marks[static_cast<size_t>(to)])};
    };
    for (int64_t pass = 0; pass < slot.passes; ++pass) {
      timeline.forward.push_back(between(2 * pass, 2 * pass + 1));
      timeline.backward.push_back(between(2 * pass + 1, 2 * pass + 2));
    }
    const int64_t end = 2 * slot.passes;
    timeline.exposed = between(end, end + 1);
    timeline.update = between(end + 1, end + 2);
    timeline.sums = bucketer->sums(first, slot.index);
    return timeline;
  }

  std::optional<StepResult> finish() {
    std::optional<StepResult> last;
    while (collected < launched) last = collect();
    stream->synchronize();  // running values that were put back are read from other streams, too
    return last;
  }

  Backend& backend;
  Device& device;
  uint64_t seed;
  bool eager;
  std::unique_ptr<Communicator> communicator;  // over this device's memory
  BatchPlan plan;
  size_t input_bytes = 0;  // of one sample
  size_t target_bytes = 0;
  Parameters parameters;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Stream> copies;
  std::unique_ptr<const Program> program;
  std::unique_ptr<Optimizer> optimizer;
  Buffer values;
  LowPrecisionCopy low_precision;
  Buffer running;
  Buffer activations;
  std::unique_ptr<Communicator> bucket_communicator;
  Buffer gradients;
  std::unique_ptr<Conversion> narrow, widen;  // of gradients, for the bucketer
  std::unique_ptr<Bucketer> bucketer;
  ModelArrays arrays;
  int device_lane = 0;  // where the ledger notes that the host waits for a GPU, and so for all
  std::function<void(int64_t)> advance;
  const std::function<void(int64_t)> nothing;
  std::vector<std::unique_ptr<Slot>> slots;
  int64_t launched = 0;
  int64_t collected = 0;
  int64_t final_before = kMetricCount;  // gradients in front are final in the step at hand
  std::unique_ptr<StepProbe> probe;     // null: steps are not profiled
};

Step::Step(const Config& config, const Graph& graph, Backend& backend, Communicator& world)
    : state_(std::make_unique<State>(config, graph, backend, world)) {}
Step::~Step() = default;

void Step::initialise() {
  State& s = *state_;
  s.device.fill_zero(s.running.data(), s.parameters.running_bytes(), *s.stream);
  s.optimizer->reset_state(*s.stream);
  s.stream->synchronize();
  trireme::initialise(s.parameters, s.backend, s.seed, s.values.data(), s.running.data());
  parameters_changed();
}

void Step::parameters_changed() {
  State& s = *state_;
  s.low_precision.refresh(s.values.data(), *s.stream);
  s.stream->synchronize();
}

std::optional<StepResult> Step::run(const Batch& batch, int64_t step, float learning_rate,
                                    bool stop_requested) {
  return state_->run(batch, step, learning_rate, stop_requested);
}

std::optional<StepResult> Step::finish() { return state_->finish(); }

void Step::profile(bool on) {
  State& s = *state_;
  s.probe.reset();
  if (!on) return;
  s.probe = std::make_unique<StepProbe>(s.device, *s.stream, *s.program, s.plan.passes,
                                        static_cast<int>(s.slots.size()));
}

const StepProbe* Step::probe() const { return state_->probe.get(); }

std::optional<Step::NotFinite> Step::find_not_finite() { return state_->find_not_finite(); }

void Step::average_running_values() {
  State& s = *state_;
  if (s.communicator->size() == 1 || s.parameters.moving_elements == 0) return;
  s.communicator->all_reduce_sum(s.running.data(), s.parameters.moving_elements, DType::kF32,
                                 *s.stream);
  std::vector<float> host(static_cast<size_t>(s.parameters.moving_elements));
  const size_t bytes = host.size() * sizeof(float);
  s.device.copy(host.data(), s.running.data(), bytes, *s.stream);
  s.stream->synchronize();
  for (float& value : host) value /= static_cast<float>(s.communicator->size());
  s.device.copy(s.running.data(), host.data(), bytes, *s.stream);
  s.stream->synchronize();
}

const BatchPlan& Step::plan() const { return state_->plan; }

StepMemory Step::memory_bytes() const {
  const State& s = *state_;
  size_t batches = 0;
  size_t running = s.running.bytes();
  for (const auto& slot : s.slots) {
    batches += slot->inputs.bytes() + slot->targets.bytes();
    running += slot->running_before.bytes();
  }
  return {s.parameters.array_bytes() + s.low_precision.bytes() + running,
          s.parameters.trained_bytes(), s.optimizer->state_bytes(), s.program->activation_bytes(),
          batches};
}

const Parameters& Step::parameters() const { return state_->parameters; }
const ModelArrays& Step::arrays() const { return state_->arrays; }
std::span<std::byte> Step::activations() {
  return {state_->activations.data(), state_->activations.bytes()};
}
Optimizer& Step::optimizer() { return *state_->optimizer; }
const Program& Step::program() const { return *state_->program; }
std::span<const Bucket> Step::buckets() const { return state_->bucketer->buckets(); }
Stream& Step::stream() { return *state_->stream; }
Communicator& Step::communicator() { return *state_->communicator; }
Backend& Step::backend() { return state_->backend; }

}  // namespace trireme
