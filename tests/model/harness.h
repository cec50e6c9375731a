// A compiled network with its own memory, for tests.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "core/ignored_label.h"
#include "core/random.h"
#include "model/context.h"
#include "model/graph.h"
#include "model/model.pb.h"
#include "tests/ops/reference/reference_backend.h"

namespace trireme::model {

inline ModelConfig network(const std::string& layers) {
  ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "network { name: \"test\" " + layers + "}", &config));
  return config;
}

inline ModelConfig zoo(const std::string& name) {
  ModelConfig config;
  config.mutable_zoo()->set_name(name);
  return config;
}

inline ModelInput classified(const Shape& shape, int64_t classes) {
  ModelInput input;
  input.input = {DType::kF32, shape, Layout::row_major()};
  input.target = {DType::kI32, Shape{}, Layout::row_major()};
  input.classes = classes;
  return input;
}

// Tokens [length] with a label for each.
inline ModelInput token_input(int64_t length, int64_t vocab_size) {
  const TensorSpec tokens{DType::kI32, {length}, Layout::row_major()};
  return {.input = tokens, .target = tokens, .classes = vocab_size};
}

// Tokens [length] of a vocabulary with one label.
inline ModelInput labeled_tokens(int64_t length, int64_t vocab_size, int64_t classes) {
  ModelInput input = token_input(length, classes);
  input.target.shape = Shape{};
  input.vocab_size = vocab_size;
  return input;
}

// Random rows in the format of the input, with labels, class probabilities or numbers as targets.
// Some labels of tokens are ignored.
struct TestBatch {
  TestBatch(const ModelInput& format, int64_t rows, uint64_t seed)
      : inputs(static_cast<size_t>(rows * format.input.shape.elements())) {
    const Random random(seed, RandomPurpose::kSynthetic);
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = random.normal_at(i);
    const auto classes = static_cast<uint32_t>(std::max<int64_t>(1, format.classes));
    const auto label_at = [&](uint64_t i) {
      return static_cast<int32_t>(random.bits(i) % classes);
    };
    for (int64_t r = 0; r < rows * format.labels_per_sample(); ++r) {
      const bool ignored = format.labels_per_sample() > 1 && r % 4 == 1;
      labels.push_back(ignored ? kIgnoredLabel : label_at(1000000 + static_cast<uint64_t>(r)));
    }
    if (format.input.dtype == DType::kI32) {
      const auto vocab_size = static_cast<uint32_t>(format.vocabulary());
      for (size_t i = 0; i < inputs.size(); ++i) {
        tokens_.push_back(static_cast<int32_t>(random.bits(3000000 + i) % vocab_size));
      }
    }
    const auto numbers = static_cast<size_t>(rows * format.target.shape.elements());
    for (size_t i = 0; i < numbers; ++i) numbers_.push_back(random.normal_at(2000000 + i));
    if (format.classes > 0) normalize_rows(static_cast<size_t>(format.classes));
    float_targets_ = format.target.dtype == DType::kF32;
  }
  std::span<const std::byte> input_bytes() const {
    return tokens_.empty() ? std::as_bytes(std::span(inputs)) : std::as_bytes(std::span(tokens_));
  }
  std::span<const std::byte> targets() const {
    return float_targets_ ? std::as_bytes(std::span(numbers_)) : std::as_bytes(std::span(labels));
  }

  void set_tokens(std::vector<int32_t> tokens) { tokens_ = std::move(tokens); }

  // Returns `count` of the batch's `rows` rows, which have labels.
  TestBatch part(size_t rows, size_t first, size_t count) const {
    TestBatch result = *this;
    const auto cut = [&](auto& values) {
      const size_t per_row = values.size() / rows;
      values = {values.begin() + static_cast<ptrdiff_t>(first * per_row),
                values.begin() + static_cast<ptrdiff_t>((first + count) * per_row)};
    };
    cut(result.inputs);
    cut(result.labels);
    cut(result.tokens_);
    return result;
  }

  std::vector<float> inputs;
  std::vector<int32_t> labels;

 private:
  void normalize_rows(size_t classes) {
    for (size_t row = 0; row < numbers_.size() / classes; ++row) {
      const std::span<float> of_row = std::span(numbers_).subspan(row * classes, classes);
      float sum = 0;
      for (float& number : of_row) sum += number = std::abs(number);
      for (float& number : of_row) number /= sum;
    }
  }

  std::vector<int32_t> tokens_;  // the inputs if they are tokens
  std::vector<float> numbers_;
  bool float_targets_ = false;
};

// A device and backend to test, and its tolerances compared to the reference.
struct TestTarget {
  std::string name;
  std::function<std::unique_ptr<Device>()> device;
  std::function<std::unique_ptr<ops::Backend>(Device&)> backend;
  DType dtype = DType::kF32;
  // Relative errors of the loss, of the gradient of all parameters together, of the gradient of
  // each parameter, and of running statistics.
  double loss = 1e-4, gradient = 1e-4, gradients = 1e-3, running_stats = 1e-4;
};

inline void PrintTo(const TestTarget& target, std::ostream* out) { *out << target.name; }

inline TestTarget reference() {
  return {.name = "reference",
          .device = [] { return create_cpu_device(1); },
          .backend = ops::create_reference_backend,
          .dtype = DType::kF64};
}

inline TestTarget cpu() {
  return {.name = "cpu_f32",
          .device = [] { return create_cpu_device(1); },
          .backend = [](Device& device) { return ops::create_cpu_backend(device); }};
}

inline TestTarget cuda() {
  return {.name = "cuda_f32",
          .device = [] { return create_cuda_device(0); },
          .backend =
              [](Device& device) {
                return ops::create_cuda_backend(device, {.tuning_cache = {}, .measure = false});
              }};
}

// Changes the dtype of a target to one with a unit roundoff of 2^-bits.
inline TestTarget in_low_precision(TestTarget target, DType dtype, int bits) {
  target.name.replace(target.name.find("f32"), 3, name_of(dtype));
  target.dtype = dtype;
  const double roundoff = std::ldexp(1.0, -bits);
  target.loss = 2 * roundoff;
  target.gradient = 24 * roundoff;
  target.gradients = 64 * roundoff;
  target.running_stats = 4 * roundoff;
  return target;
}

// All targets available on this machine.
inline std::vector<TestTarget> targets() {
  std::vector<TestTarget> all{cpu()};
  if (ops::cpu_computes_in(DType::kBF16)) all.push_back(in_low_precision(cpu(), DType::kBF16, 8));
  if (query_cuda().devices > 0) {
    all.push_back(cuda());
    all.push_back(in_low_precision(cuda(), DType::kBF16, 8));
    all.push_back(in_low_precision(cuda(), DType::kF16, 11));
  }
  return all;
}

class TestNetwork {
 public:
  TestNetwork(const ModelConfig& config, const ModelInput& input, const TestTarget& target,
              CompileOptions options)
      : device_(target.device()),
        backend_(target.backend(*device_)),
        stream_(device_->create_stream(StreamKind::kCompute)),
        graph_(build_graph(config, input)) {
    options.dtype = target.dtype;
    program = Program::compile(graph_, *backend_, options, parameters);
    values_ = device_->allocate(parameters.array_bytes());
    low_precision_ = LowPrecisionCopy(parameters, *backend_);
    gradients_ = device_->allocate(parameters.trained_bytes());
    running_stats_ = device_->allocate(parameters.running_stat_bytes());
    activations_ = device_->allocate(program->activation_bytes());
    if (options.output) output_ = device_->allocate(sizeof(float) * outputs(options.batch));
    state_ = device_->allocate(sizeof state);
    initialize(parameters, *backend_, /*seed=*/7, values_.data(), running_stats_.data());
    low_precision_.refresh(values_.data(), *stream_);
    state.valid_rows = static_cast<int32_t>(options.batch);
    state.loss_gradient_scale = 1.0f / static_cast<float>(options.batch);
    context_.emplace(*program, arrays(), activations_.data());
    context_->bind(Port::kOutput, output_.data());
  }

  // Runs forward and backward on the batch. All memory to be written is NaN before.
  void run(const TestBatch& batch, bool clear_gradients = false) {
    fill_with_nan(clear_gradients);
    run_again(batch);
  }
  // Runs forward and backward, and clears only the metrics before.
  void run_again(const TestBatch& batch) {
    bind(batch);
    context_->forward(*stream_);
    context_->backward(*stream_, [this](int64_t end) { watermarks.push_back(end); });
    stream_->synchronize();
  }
  // Like run(), but trained parameters are NaN until the forward pass asks for them.
  void run_with_late_parameters(const TestBatch& batch) {
    fill_with_nan(/*clear_gradients=*/false);
    bind(batch);
    const Buffer values = device_->allocate(values_.bytes());
    device_->copy(values.data(), values_.data(), values.bytes(), *stream_);
    const auto receive = [&](int64_t begin, int64_t end) {
      const auto size = size_of(parameters.array_dtype());
      device_->copy(values_.data() + begin * size, values.data() + begin * size,
                    (end - begin) * size, *stream_);
      low_precision_.refresh(values_.data(), *stream_);
    };
    fill(values_, 0xFF, parameters.trained_bytes());
    low_precision_.refresh(values_.data(), *stream_);
    int64_t received = parameters.trained_elements;
    context_->forward(*stream_, [&](int64_t begin) {
      receive(begin, received);
      received = begin;
    });
    receive(0, received);
    context_->backward(*stream_, {});
    stream_->synchronize();
  }
  // Like run(), but checks the values of each instruction.
  std::optional<Context::NotFinite> first_not_finite(const TestBatch& batch) {
    fill_with_nan(/*clear_gradients=*/false);
    bind(batch);
    const auto forward = context_->check_forward(*device_, *stream_);
    const auto backward = context_->check_backward(
        *device_, *stream_, [this](int64_t end) { watermarks.push_back(end); });
    return forward ? forward : backward;
  }

  // Another micro-batch in flight, bound to its own inputs, targets and activations.
  struct InFlight {
    Buffer activations, inputs, targets;
    Context context;
  };
  InFlight in_flight(const TestBatch& batch) {
    Buffer activations = device_->allocate(program->activation_bytes());
    Buffer inputs = on_device(batch.input_bytes());
    Buffer targets = on_device(batch.targets());
    Context context(*program, arrays(), activations.data());
    context.bind_batch(inputs.data(), targets.data(), state_.as<ops::StepState>());
    return {std::move(activations), std::move(inputs), std::move(targets), std::move(context)};
  }
  // Sets gradients and metrics to zero. Call before contexts of in_flight() run.
  void begin_accumulation() {
    fill(gradients_, 0, gradients_.bytes());
    device_->copy(state_.data(), &state, sizeof state, *stream_);
    stream_->synchronize();
  }
  Stream& stream() { return *stream_; }

  double metric(ops::Metric which) const {
    if (parameters.array_dtype() == DType::kF64) return gradients_.as<double>()[which];
    std::array<float, ops::kMetricCount> metrics{};
    device_->copy(metrics.data(), gradients_.data(), sizeof metrics, *stream_);
    stream_->synchronize();
    return double{metrics[which]};
  }
  // Returns the contents of Port::kOutput.
  std::vector<float> output() const {
    std::vector<float> numbers(output_.bytes() / sizeof(float));
    device_->copy(numbers.data(), output_.data(), output_.bytes(), *stream_);
    stream_->synchronize();
    return numbers;
  }
  std::vector<float> gradient(const Parameter& parameter) { return read(parameter, gradients_); }
  std::vector<float> value(const Parameter& parameter) { return read(parameter, values_); }
  void set_value(const Parameter& parameter, const std::vector<float>& numbers) {
    from_canonical(*backend_, numbers.data(), parameter.spec, parameter.at(values_.data()));
    low_precision_.refresh(values_.data(), *stream_);
  }
  void set_running_stat(const RunningStatistic& value, const std::vector<float>& numbers) {
    from_canonical(*backend_, numbers.data(), value.spec, value.at(running_stats_.data()));
  }
  std::vector<float> running_stat(const RunningStatistic& value) {
    std::vector<float> numbers(static_cast<size_t>(value.spec.shape.elements()));
    to_canonical(*backend_, value.spec, value.at(running_stats_.data()), numbers.data());
    return numbers;
  }
  // Returns element i of the parameter in the double-precision arrays of the reference, which are
  // row-major.
  double& exact_value(const Parameter& parameter, size_t i) {
    return values_.as<double>()[static_cast<size_t>(parameter.begin) + i];
  }
  double exact_gradient(const Parameter& parameter, size_t i) const {
    return gradients_.as<double>()[static_cast<size_t>(parameter.begin) + i];
  }
  const Graph& graph() const { return graph_; }
  Device& device() { return *device_; }
  ops::Backend& backend() { return *backend_; }
  ModelArrays arrays() const {
    return {.parameters = values_.data(),
            .low_precision = low_precision_.data(),
            .gradients = gradients_.data(),
            .running_stats = running_stats_.data()};
  }
  Buffer on_device(std::span<const std::byte> host) {
    Buffer buffer = device_->allocate(host.size_bytes());
    device_->copy(buffer.data(), host.data(), host.size_bytes(), *stream_);
    stream_->synchronize();
    return buffer;
  }

  std::unique_ptr<const Program> program;
  Parameters parameters;
  ops::StepState state;
  std::vector<int64_t> watermarks;

 private:
  size_t outputs(int64_t rows) const {
    const Node& read = graph_.nodes[static_cast<size_t>(graph_.nodes.back().inputs[0])];
    return static_cast<size_t>(rows * read.signature.output.elements());
  }
  void fill_with_nan(bool clear_gradients) {
    // 0xFF bytes are NaN in every float format.
    fill(activations_, 0xFF, activations_.bytes());
    fill(gradients_, clear_gradients ? 0 : 0xFF, gradients_.bytes());
    fill(output_, 0xFF, output_.bytes());
  }
  void bind(const TestBatch& batch) {
    fill(gradients_, 0, ops::kMetricCount * size_of(parameters.array_dtype()));
    inputs_ = on_device(batch.input_bytes());
    targets_ = on_device(batch.targets());
    device_->copy(state_.data(), &state, sizeof state, *stream_);
    context_->bind_batch(inputs_.data(), targets_.data(), state_.as<ops::StepState>());
    watermarks.clear();
  }
  // Parameters and gradients have the same layout.
  std::vector<float> read(const Parameter& parameter, const Buffer& array) {
    std::vector<float> numbers(static_cast<size_t>(parameter.spec.shape.elements()));
    to_canonical(*backend_, parameter.spec, parameter.at(array.data()), numbers.data());
    return numbers;
  }
  void fill(const Buffer& buffer, unsigned char byte, size_t bytes) {
    const std::vector<unsigned char> host(bytes, byte);
    device_->copy(buffer.data(), host.data(), bytes, *stream_);
    stream_->synchronize();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<Stream> stream_;
  Graph graph_;
  std::optional<Context> context_;
  LowPrecisionCopy low_precision_;
  Buffer values_, gradients_, running_stats_, activations_, output_, state_, inputs_, targets_;
};

// The gradients of all parameters.
inline std::vector<float> full_gradient(TestNetwork& net) {
  std::vector<float> full;
  for (const Parameter& parameter : net.parameters.all) {
    const std::vector<float> own = net.gradient(parameter);
    full.insert(full.end(), own.begin(), own.end());
  }
  return full;
}

inline double relative_error(const std::vector<float>& got, const std::vector<float>& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(double{got[i]} - wanted[i], 2);
    norm += std::pow(double{wanted[i]}, 2);
  }
  // NaN must not pass a comparison with a tolerance.
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-12);
}

}  // namespace trireme::model
