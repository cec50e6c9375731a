// Runs a single op of the reference backend on tensors that are plain vectors.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/random.h"
#include "ops/step_state.h"
#include "tests/ops/reference/reference_backend.h"

namespace trireme::ops {

// An argument: its spec and its data.
struct Tensor {
  TensorSpec spec = absent();
  std::vector<std::byte> memory;

  template <class T>
  T* as() {
    return reinterpret_cast<T*>(memory.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(memory.data());
  }
  double& operator[](int64_t i) { return as<double>()[i]; }
  double operator[](int64_t i) const { return as<double>()[i]; }
  int64_t size() const { return spec.shape.elements(); }
  std::vector<double> numbers() const { return {as<double>(), as<double>() + size()}; }
};

template <class T>
Tensor stored(DType dtype, const Shape& shape, const std::vector<T>& values,
              Layout layout = Layout::row_major()) {
  Tensor tensor{{dtype, shape, std::move(layout)}, {}};
  tensor.memory.resize(values.size() * sizeof(T));
  std::memcpy(tensor.memory.data(), values.data(), tensor.memory.size());
  return tensor;
}

inline Tensor numbers(const Shape& shape, const std::vector<double>& values) {
  return stored(DType::kF64, shape, values);
}
inline Tensor filled(const Shape& shape, double value) {
  return numbers(shape, std::vector<double>(static_cast<size_t>(shape.elements()), value));
}
// Returns an output tensor, initialized with NaN.
inline Tensor unwritten(const Shape& shape) {
  return filled(shape, std::numeric_limits<double>::quiet_NaN());
}
inline Tensor random_numbers(const Shape& shape, uint64_t stream) {
  Tensor tensor = filled(shape, 0);
  const Random random(1, RandomPurpose::kSynthetic, stream);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor[i] = random.normal_at(static_cast<uint64_t>(i));
  }
  return tensor;
}
inline Tensor state_of(const StepState& state) {
  return stored(DType::kU8, {int64_t{sizeof(state)}}, std::vector<StepState>{state});
}
inline Tensor loss_scale_of(const LossScale& scale) {
  return stored(DType::kU8, {int64_t{sizeof(scale)}}, std::vector<LossScale>{scale});
}
inline Tensor labels_of(const std::vector<int32_t>& labels) {
  return stored(DType::kI32, {static_cast<int64_t>(labels.size())}, labels);
}
inline Tensor no_metrics_yet() {
  return stored(DType::kF32, {kMetricCount}, std::vector<float>(kMetricCount, 0));
}
inline Tensor unsized() { return {unsized_workspace(), {}}; }

// Runs the op. A workspace is resized to the size that the plan chose.
inline void evaluate(const Op& op, const std::vector<Tensor*>& tensors) {
  const auto device = create_cpu_device(1);
  const auto backend = create_reference_backend(*device);
  const auto stream = device->create_stream(StreamKind::kCompute);
  std::vector<TensorSpec> specs;
  for (const Tensor* tensor : tensors) specs.push_back(tensor->spec);
  const auto plan = backend->plan(op, specs);
  std::vector<void*> args;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& tensor = *tensors[i];
    tensor.spec = plan->specs()[i];
    tensor.memory.resize(tensor.spec.bytes());
    args.push_back(is_absent(tensor.spec) ? nullptr : tensor.memory.data());
  }
  const Buffer scratch = device->allocate(plan->scratch_bytes());
  plan->encode(*stream, args, scratch.data());
  stream->synchronize();
}

// Runs the op on tensors in the order of its Arg.
inline void evaluate(const Op& op, std::vector<Tensor>& tensors) {
  std::vector<Tensor*> pointers;
  for (Tensor& tensor : tensors) pointers.push_back(&tensor);
  evaluate(op, pointers);
}

inline double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Returns ||got - wanted|| / ||wanted||. If any value is NaN, the result is NaN.
inline double relative_error(std::span<const double> got, std::span<const double> wanted) {
  if (got.size() != wanted.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}
inline double relative_error(const Tensor& got, const Tensor& wanted) {
  return relative_error(got.numbers(), wanted.numbers());
}

}  // namespace trireme::ops
