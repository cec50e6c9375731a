// A compiled network with memory of its own, for tests.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "model/graph.h"
#include "model/model.pb.h"
#include "model/program.h"

namespace trireme {

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

// Random rows in the format of the input, with labels or numbers as targets.
struct TestBatch {
  TestBatch(const ModelInput& format, int64_t rows, uint64_t seed)
      : inputs(static_cast<size_t>(rows * format.input.shape.elements())) {
    const Random random(seed, RandomPurpose::kSynthetic);
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = random.normal_at(i);
    for (int64_t r = 0; r < rows; ++r) {
      labels.push_back(
          static_cast<int32_t>(random.bits(1000000 + static_cast<uint64_t>(r)) %
                               static_cast<uint32_t>(std::max<int64_t>(1, format.classes))));
    }
    const auto numbers = static_cast<size_t>(rows * format.target.shape.elements());
    for (size_t i = 0; i < numbers; ++i) numbers_.push_back(random.normal_at(2000000 + i));
    regression_ = format.target.dtype == DType::kF32;
  }
  const void* targets() const {
    return regression_ ? static_cast<const void*>(numbers_.data()) : labels.data();
  }

  std::vector<float> inputs;
  std::vector<int32_t> labels;

 private:
  std::vector<float> numbers_;
  bool regression_ = false;
};

class TestNetwork {
 public:
  TestNetwork(const ModelConfig& config, const ModelInput& input, bool reference,
              CompileOptions options)
      : device_(create_cpu_device(1)),
        backend_(reference ? create_reference_backend(*device_) : create_cpu_backend(*device_)),
        stream_(device_->create_stream(StreamKind::kCompute)),
        graph_(build_graph(config, input)) {
    options.dtype = reference ? DType::kF64 : DType::kF32;
    program = Program::compile(graph_, *backend_, options, parameters);
    const size_t element = size_of(options.dtype);
    const auto elements = static_cast<size_t>(parameters.elements);
    values_ = device_->allocate(elements * element);
    gradients_ = device_->allocate(elements * element);
    running_ = device_->allocate(static_cast<size_t>(parameters.running_elements) * element);
    activations_ = device_->allocate(program->activation_bytes());
    initialise(parameters, *backend_, /*seed=*/7, values_.data(), running_.data());
    state.valid_rows = static_cast<int32_t>(options.batch);
    state.loss_gradient_scale = 1.0f / static_cast<float>(options.batch);
    program->bind(
        {values_.data(), gradients_.data(), running_.data(), activations_.data(), &state});
  }

  // One pass over the batch; everything that is to be written starts as NaN.
  void run(const TestBatch& batch, bool clear_gradients = false) {
    // 0xFF bytes are NaN in every float format.
    std::memset(activations_.data(), 0xFF, activations_.bytes());
    std::memset(gradients_.data(), clear_gradients ? 0 : 0xFF, gradients_.bytes());
    go_on(batch);
  }
  // Without clearing anything but the metrics.
  void go_on(const TestBatch& batch) {
    std::memset(gradients_.data(), 0, kMetricCount * size_of(parameters.dtype));
    program->bind_batch(batch.inputs.data(), batch.targets());
    program->forward(*stream_);
    watermarks.clear();
    program->backward(*stream_, [this](int64_t end) { watermarks.push_back(end); });
  }

  double metric(Metric which) const {
    return parameters.dtype == DType::kF64 ? gradients_.as<double>()[which]
                                           : double{gradients_.as<float>()[which]};
  }
  std::vector<float> gradient(const Parameter& parameter) { return read(parameter, gradients_); }
  std::vector<float> value(const Parameter& parameter) { return read(parameter, values_); }
  void set_value(const Parameter& parameter, const std::vector<float>& numbers) {
    from_canonical(parameter, *backend_, numbers.data(), values_.data());
  }
  std::vector<float> running(const RunningValue& value) {
    std::vector<float> numbers(static_cast<size_t>(value.spec.shape.elements()));
    to_canonical(value, *backend_, running_.data(), numbers.data());
    return numbers;
  }
  // Element i of the parameter in the double-precision arrays of the reference, whose layouts are
  // canonical.
  double& exact_value(const Parameter& parameter, size_t i) {
    return values_.as<double>()[static_cast<size_t>(parameter.begin) + i];
  }
  double exact_gradient(const Parameter& parameter, size_t i) const {
    return gradients_.as<double>()[static_cast<size_t>(parameter.begin) + i];
  }
  const Graph& graph() const { return graph_; }

  std::unique_ptr<Program> program;
  Parameters parameters;
  StepState state;
  std::vector<int64_t> watermarks;

 private:
  std::vector<float> read(const Parameter& parameter, const Buffer& array) {
    std::vector<float> numbers(static_cast<size_t>(parameter.spec.shape.elements()));
    // Gradients have the parameters' layout; in f32 and f64 also their dtype.
    to_canonical(parameter, *backend_, array.data(), numbers.data());
    return numbers;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  Graph graph_;
  Buffer values_, gradients_, running_, activations_;
};

inline double relative_error(const std::vector<float>& got, const std::vector<float>& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(double{got[i]} - wanted[i], 2);
    norm += std::pow(double{wanted[i]}, 2);
  }
  // NaN must not pass a comparison with a tolerance.
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-12);
}

}  // namespace trireme
