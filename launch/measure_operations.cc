#include "launch/measure_operations.h"

#include <algorithm>
#include <chrono>

#include "model/context.h"

namespace trireme::cli {
namespace {

constexpr size_t kPasses = 5;

class OperationTimer final : public model::InstructionObserver {
 public:
  explicit OperationTimer(size_t operations) : seconds_(operations) {}

  void before(size_t, Stream& stream) override {
    stream.synchronize();
    begin_ = std::chrono::steady_clock::now();
  }
  void after(size_t operation, Stream& stream) override {
    stream.synchronize();
    seconds_[operation].push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
  }
  std::vector<double> medians() {
    std::vector<double> medians;
    for (std::vector<double>& passes : seconds_) {
      std::ranges::sort(passes);
      medians.push_back(passes.empty() ? 0 : passes[passes.size() / 2]);
    }
    return medians;
  }

 private:
  std::vector<std::vector<double>> seconds_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace

std::vector<double> measure_operations(const RankPlan& plan, const model::Graph& graph) {
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
  OperationTimer timer(plan.program->instructions().size());
  context.observe(&timer);
  for (size_t pass = 0; pass < kPasses; ++pass) {
    context.forward(*stream);
    context.backward(*stream, {});
  }
  stream->synchronize();
  return timer.medians();
}

double recomputation_seconds(const model::Program& program, const RankPlan& measured,
                             const std::vector<double>& seconds) {
  const auto own = measured.program->instructions();
  std::vector<double> repeated(seconds);  // by operation of the forward pass
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].repeats()) repeated[static_cast<size_t>(own[i].repeated)] = seconds[i];
  }
  double total = 0;
  for (const model::InstructionReport& instruction : program.instructions()) {
    if (instruction.repeats()) total += repeated[static_cast<size_t>(instruction.repeated)];
  }
  return total;
}

}  // namespace trireme::cli
