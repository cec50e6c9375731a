// The values of a network and where each lies in the flat arrays. Those of gradients and optimizer
// state lie like the values that are trained; frozen values come behind these and have neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "ops/backend.h"

namespace trireme::model {

struct Initializer {
  enum class Kind { kUniform, kNormal, kConstant } kind = Kind::kConstant;
  float mean = 0;   // or the constant
  float width = 0;  // deviation (normal) or half of the interval (uniform)
};

struct Parameter {
  std::string name;  // "layer1.0.conv1.weight"
  // In the arrays. Shape as in PyTorch; the layout that the fastest plan wants.
  TensorSpec spec;
  DType dtype = DType::kF32;  // in which the network reads it: Parameters::dtype, or the arrays'
  Initializer init;
  bool decays = true;  // whether weight decay applies: not for biases and norms
  // Not trained (ModelConfig::freeze): the network reads it, and no array but that of values has
  // it.
  bool frozen = false;
  int64_t begin = 0;  // first element in the arrays
  int64_t end = 0;    // one past the last, padding of blocked layouts included

  // Where it lies in an array of Parameters::array_dtype().
  void* at(void* array) const {
    return static_cast<std::byte*>(array) + begin * static_cast<int64_t>(size_of(spec.dtype));
  }
};

// A value that training keeps but does not train: running mean and variance. Row-major.
struct RunningValue {
  std::string name;  // "bn1.running_mean"
  TensorSpec spec;
  float initial = 0;
  bool frozen = false;  // of a layer that is: read, never changed
  int64_t begin = 0;    // first element in the array of running values

  void* at(void* array) const {
    return static_cast<std::byte*>(array) + begin * static_cast<int64_t>(size_of(spec.dtype));
  }
};

struct Parameters {
  DType dtype = DType::kF32;  // that the network computes in
  // Of the arrays of values, gradients, optimizer state and running values: f32, or f64 in the
  // reference, whatever the network computes in.
  DType array_dtype() const { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
  bool low_precision() const { return dtype != array_dtype(); }
  // The gradient array starts with kMetricCount slots for metrics; parameter elements begin after
  // them, in the order in which their gradients become final, frozen ones last.
  std::vector<Parameter> all;
  int64_t trained_elements = 0;  // of gradients and optimizer state, the metrics' slots included
  int64_t elements = 0;          // of the values: frozen ones too
  std::vector<RunningValue> running;
  int64_t moving_elements = 0;   // that training changes; frozen ones come behind
  int64_t running_elements = 0;  // all of them
  int64_t count() const;         // numbers in all parameters, without padding
  int64_t trained_count() const;
  size_t array_bytes() const { return elements * size_of(array_dtype()); }
  size_t trained_bytes() const { return trained_elements * size_of(array_dtype()); }
  size_t running_bytes() const { return running_elements * size_of(array_dtype()); }
};

// The copy of all values that a network in low precision reads: the same elements as in the array,
// in Parameters::dtype. The optimizer's update writes both; whoever else sets values refreshes it.
// Without low precision it is empty.
class LowPrecisionCopy {
 public:
  LowPrecisionCopy() = default;
  LowPrecisionCopy(const Parameters& parameters, ops::Backend& backend);

  void* data() const { return copy_.data(); }
  size_t bytes() const { return copy_.bytes(); }
  void refresh(const void* values, Stream& stream) const;

 private:
  Buffer copy_;
  std::unique_ptr<ops::OpPlan> plan_;
  Buffer scratch_;
};

// Writes initial values, zeros between them: a pure function of the seed and the names.
void initialize(const Parameters& parameters, ops::Backend& backend, uint64_t seed, void* values,
                void* running);

// Copies one tensor between device memory, where it is laid out as `spec` says, and canonical form:
// row-major f32 in host memory. Blocks.
void to_canonical(ops::Backend& backend, const TensorSpec& spec, const void* tensor, float* out);
void from_canonical(ops::Backend& backend, const float* in, const TensorSpec& spec, void* tensor);

}  // namespace trireme::model
