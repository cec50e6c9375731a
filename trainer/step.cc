#include "trainer/step.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <vector>

#include "comm/control.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Where buckets may end: the gradients' beginnings, padding in front of them belongs to the one
// before.
std::vector<int64_t> bucket_ends(const Parameters& parameters) {
  std::vector<int64_t> ends;
  for (const Parameter& parameter : parameters.trained) {
    if (parameter.begin > kMetricCount) ends.push_back(parameter.begin);
  }
  ends.push_back(parameters.elements);
  std::sort(ends.begin(), ends.end());
  return ends;
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
  State(const Config& config, const Graph& graph, Backend& its_backend,
        Communicator& its_communicator)
      : backend(its_backend),
        device(its_backend.device()),
        communicator(its_communicator),
        seed(config.run.seed()) {
    together(communicator, [&] {
      plan = plan_batch(config, communicator.size());
      compile(config, graph);
    });
    // Sums of buckets run beside what layers say to each other, so they have a communicator of
    // their own.
    bucket_communicator = communicator.split(0, communicator.rank());
    gradients = bucket_communicator->allocate(array_bytes());
    together(communicator, [&] { bind(); });
    const BucketConfig& buckets = config.run.buckets();
    bucketer = std::make_unique<Bucketer>(
        *bucket_communicator, device, *stream, gradients.data(), DType::kF32,
        cut_buckets(bucket_ends(parameters), DType::kF32,
                    {buckets.first_bytes(), buckets.bytes(), buckets.last_bytes()}));
    advance = [this](int64_t final_end) { bucketer->advance(final_end); };
  }

  ~State() {
    bucketer.reset();
    gradients = Buffer();
  }

  void compile(const Config& config, const Graph& graph) {
    stream = device.create_stream(StreamKind::kCompute);
    CompileOptions options;
    options.batch = plan.micro;
    options.accumulate = plan.passes > 1;
    options.collective = communicator.size() > 1 ? &communicator : nullptr;
    program = Program::compile(graph, backend, options, parameters);
    optimizer = std::make_unique<Optimizer>(config.run, parameters, backend);
    input_bytes = graph.input.input.bytes();
    target_bytes = graph.input.target.bytes();
    values = device.allocate(array_bytes());
    running = device.allocate(running_bytes());
    activations = device.allocate(program->activation_bytes());
    step_state = device.allocate(sizeof(StepState));
  }

  void bind() {
    memory.parameters = values.data();
    memory.gradients = gradients.data();
    memory.running = running.data();
    memory.activations = activations.data();
    memory.state = step_state.as<StepState>();
    program->bind(memory);
  }

  size_t array_bytes() const { return static_cast<size_t>(parameters.elements) * sizeof(float); }
  size_t running_bytes() const {
    return static_cast<size_t>(parameters.running_elements) * sizeof(float);
  }

  void clear_gradients(bool stop_requested) {
    // A pass that overwrites gradients still adds to the metrics in front of them.
    if (plan.passes > 1) device.fill_zero(gradients.data(), array_bytes(), *stream);
    host_metrics.fill(0);
    host_metrics[kMetricStopRequests] = stop_requested ? 1 : 0;
    device.copy(gradients.data(), host_metrics.data(), sizeof host_metrics, *stream);
  }

  void pass(const Batch& batch, int64_t index, bool last) {
    const int64_t before = index * plan.micro;
    host_state.first_sample = batch.first_row + before;
    host_state.valid_rows =
        static_cast<int32_t>(std::clamp<int64_t>(batch.rows - before, 0, plan.micro));
    device.copy(memory.state, &host_state, sizeof host_state, *stream);
    program->bind_batch(batch.inputs + static_cast<size_t>(before) * input_bytes,
                        batch.targets + static_cast<size_t>(before) * target_bytes);
    const auto start = Clock::now();
    program->forward(*stream);
    const auto middle = Clock::now();
    program->backward(*stream, last ? advance : nothing);
    timings.forward += seconds(middle - start);
    timings.backward += seconds(Clock::now() - middle);
  }

  void run(const Batch& batch, int64_t step, float learning_rate, bool stop_requested) {
    timings = {};
    host_state.step = step;
    host_state.seed = seed;
    host_state.learning_rate = learning_rate;
    host_state.loss_gradient_scale = 1.0f / static_cast<float>(batch.global_rows);
    clear_gradients(stop_requested);
    // The same on all ranks, however few rows this one has: layers may wait for each other.
    const int64_t passes = ceil_div(ceil_div(batch.global_rows, communicator.size()), plan.micro);
    for (int64_t i = 0; i < passes; ++i) pass(batch, i, i + 1 == passes);
    bucketer->finish();
    const auto start = Clock::now();
    optimizer->encode(*stream, memory.parameters, memory.gradients, memory.state);
    device.copy(host_metrics.data(), gradients.data(), sizeof host_metrics, *stream);
    stream->synchronize();
    timings.update = seconds(Clock::now() - start);
    timings.exposed = bucketer->exposed_seconds();
    timings.communication = bucketer->communication_seconds();
  }

  Backend& backend;
  Device& device;
  Communicator& communicator;
  uint64_t seed;
  BatchPlan plan;
  size_t input_bytes = 0;  // of one sample
  size_t target_bytes = 0;
  Parameters parameters;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Program> program;
  std::unique_ptr<Optimizer> optimizer;
  Buffer values;
  Buffer running;
  Buffer activations;
  Buffer step_state;
  std::unique_ptr<Communicator> bucket_communicator;
  Buffer gradients;
  std::unique_ptr<Bucketer> bucketer;
  ProgramMemory memory;
  std::function<void(int64_t)> advance;
  const std::function<void(int64_t)> nothing;
  StepState host_state;
  std::array<float, kMetricCount> host_metrics{};
  StepTimings timings;
};

Step::Step(const Config& config, const Graph& graph, Backend& backend, Communicator& communicator)
    : state_(std::make_unique<State>(config, graph, backend, communicator)) {}
Step::~Step() = default;

void Step::initialise() {
  State& s = *state_;
  s.device.fill_zero(s.running.data(), s.running_bytes(), *s.stream);
  s.optimizer->zero_state(*s.stream);
  s.stream->synchronize();
  trireme::initialise(s.parameters, s.backend, s.seed, s.values.data(), s.running.data());
}

void Step::run(const Batch& batch, int64_t step, float learning_rate, bool stop_requested) {
  state_->run(batch, step, learning_rate, stop_requested);
}

std::span<const float> Step::metrics() const { return state_->host_metrics; }
const StepTimings& Step::timings() const { return state_->timings; }

void Step::average_running_values() {
  State& s = *state_;
  if (s.communicator.size() == 1 || s.parameters.running_elements == 0) return;
  s.communicator.all_reduce_sum(s.running.data(), s.parameters.running_elements, DType::kF32,
                                *s.stream);
  std::vector<float> host(static_cast<size_t>(s.parameters.running_elements));
  s.device.copy(host.data(), s.running.data(), s.running_bytes(), *s.stream);
  s.stream->synchronize();
  for (float& value : host) value /= static_cast<float>(s.communicator.size());
  s.device.copy(s.running.data(), host.data(), s.running_bytes(), *s.stream);
  s.stream->synchronize();
}

uint64_t Step::parameter_checksum() const {
  const State& s = *state_;
  std::vector<std::byte> host(s.array_bytes());
  s.device.copy(host.data(), s.values.data(), host.size(), *s.stream);
  s.stream->synchronize();
  return XXH3_64bits(host.data(), host.size());
}

const BatchPlan& Step::plan() const { return state_->plan; }

StepMemory Step::memory_bytes() const {
  const State& s = *state_;
  return {s.array_bytes() + s.running_bytes(), s.array_bytes(), s.optimizer->state_bytes(),
          s.program->activation_bytes()};
}

const Parameters& Step::parameters() const { return state_->parameters; }
const ProgramMemory& Step::memory() const { return state_->memory; }
Optimizer& Step::optimizer() { return *state_->optimizer; }
const Program& Step::program() const { return *state_->program; }
std::span<const Bucket> Step::buckets() const { return state_->bucketer->buckets(); }
Stream& Step::stream() { return *state_->stream; }
Backend& Step::backend() { return state_->backend; }

}  // namespace trireme
