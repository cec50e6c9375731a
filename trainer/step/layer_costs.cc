#include "trainer/step/layer_costs.h"

#include <algorithm>
#include <chrono>

#include "model/context.h"
#include "model/recompute.h"
#include "trainer/step/carried_states.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;

class InstructionTimer final : public model::InstructionObserver {
 public:
  explicit InstructionTimer(size_t instructions) : seconds_(instructions) {}

  void before(size_t, Stream& stream) override {
    stream.synchronize();
    begin_ = Clock::now();
  }
  void after(size_t instruction, Stream& stream) override {
    stream.synchronize();
    seconds_[instruction].push_back(std::chrono::duration<double>(Clock::now() - begin_).count());
  }
  std::vector<double> medians() {
    std::vector<double> medians;
    for (std::vector<double>& each : seconds_) {
      std::ranges::sort(each);
      medians.push_back(each.empty() ? 0 : each[each.size() / 2]);
    }
    return medians;
  }

 private:
  std::vector<std::vector<double>> seconds_;  // of each pass, by instruction
  Clock::time_point begin_;
};

// Adds the times of the instructions up, by node.
LayerCosts by_node(const model::Graph& graph, const model::Program& program,
                   const std::vector<double>& seconds) {
  LayerCosts costs(graph.nodes.size());
  const std::vector<model::InstructionReport> instructions = program.instructions();
  for (size_t i = 0; i < instructions.size(); ++i) {
    costs[static_cast<size_t>(std::max(instructions[i].layer, 0))] += seconds[i];
  }
  return costs;
}

}  // namespace

double typical_memory_speed(DeviceKind kind) { return kind == DeviceKind::kCpu ? 1e10 : 2e12; }

LayerCosts estimate_layers(const model::Graph& graph, const model::Program& program,
                           DeviceKind kind) {
  std::vector<double> seconds;
  for (const model::InstructionReport& instruction : program.instructions()) {
    const double bytes =
        std::max(instruction.bytes, instruction.flops / model::flops_per_byte(kind));
    seconds.push_back(bytes / typical_memory_speed(kind));
  }
  return by_node(graph, program, seconds);
}

size_t measured_bytes(const model::Program& program, const model::Parameters& parameters) {
  return 2 * parameters.array_bytes() + parameters.trained_bytes() + program.activation_bytes();
}

std::vector<double> measure_instructions(const model::Graph& graph, const model::Program& program,
                                         const model::Parameters& parameters, ops::Backend& backend,
                                         int64_t micro_batch) {
  constexpr int kPasses = 5;
  Device& device = backend.device();
  const auto stream = device.create_stream(StreamKind::kCompute);
  const auto zeros = [&](size_t bytes) {
    Buffer buffer = device.allocate(bytes);
    device.fill_zero(buffer.data(), bytes, *stream);
    return buffer;
  };
  const Buffer values = zeros(parameters.array_bytes());
  const Buffer gradients = zeros(parameters.trained_bytes());
  const Buffer buckets = zeros(program.bucket_bytes());
  const Buffer running_stats = zeros(parameters.running_stat_bytes());
  const Buffer activations = zeros(program.activation_bytes());
  const auto rows = static_cast<size_t>(micro_batch);
  const Buffer inputs = zeros(rows * graph.input.input.bytes());
  const Buffer targets = zeros(rows * graph.input.target.bytes());
  const Buffer state = zeros(sizeof(ops::StepState));
  stream->synchronize();
  model::LowPrecisionCopy low_precision(parameters, backend);
  model::initialize(parameters, backend, /*seed=*/1, values.data(), running_stats.data());
  low_precision.refresh(values.data(), *stream);
  ops::StepState step;
  step.valid_rows = static_cast<int32_t>(micro_batch);
  device.copy(state.data(), &step, sizeof step, *stream);
  model::Context context(program,
                         {.parameters = values.data(),
                          .low_precision = low_precision.data(),
                          .gradients = gradients.data(),
                          .buckets = buckets.data(),
                          .running_stats = running_stats.data()},
                         activations.data());
  context.bind_batch(inputs.data(), targets.data(), state.as<ops::StepState>());
  const CarriedStates carried(program, device, micro_batch);
  const Buffer states_before = zeros(carried.current().bytes());
  carried.bind(context, states_before, 0);
  InstructionTimer timer(program.instructions().size());
  context.observe(&timer);
  for (int pass = 0; pass < kPasses; ++pass) {
    context.forward(*stream);
    context.backward(*stream, {});
    stream->synchronize();
  }
  return timer.medians();
}

LayerCosts measure_layers(const model::Graph& graph, const model::Program& program,
                          const model::Parameters& parameters, ops::Backend& backend,
                          int64_t micro_batch) {
  return by_node(graph, program,
                 measure_instructions(graph, program, parameters, backend, micro_batch));
}

}  // namespace trireme::train
