// The trained values of a network and where each lies in the flat arrays of parameters, gradients
// and optimizer state, which all have the same layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "ops/backend.h"

namespace trireme {

struct Initialiser {
  enum class Kind { kUniform, kNormal, kConstant } kind = Kind::kConstant;
  float mean = 0;   // or the constant
  float width = 0;  // deviation (normal) or half of the interval (uniform)
};

struct Parameter {
  std::string name;  // "layer1.0.conv1.weight"
  TensorSpec spec;   // shape as in PyTorch; the layout that the fastest plan wants
  Initialiser init;
  bool decays = true;  // whether weight decay applies: not for biases and norms
  int64_t begin = 0;   // first element in the arrays
  int64_t end = 0;     // one past the last, padding of blocked layouts included
};

// A value that training keeps but does not train: running mean and variance. Row-major.
struct RunningValue {
  std::string name;  // "bn1.running_mean"
  TensorSpec spec;
  float initial = 0;
  int64_t begin = 0;  // first element in the array of running values
};

struct Parameters {
  DType dtype = DType::kF32;
  // The gradient array starts with kMetricCount slots for metrics; parameter elements begin after
  // them, in the order in which their gradients become final.
  std::vector<Parameter> trained;
  int64_t elements = 0;  // of the arrays, the metrics' slots included
  std::vector<RunningValue> running;
  int64_t running_elements = 0;
  int64_t count() const;  // numbers that are trained, without padding
};

// Writes initial values: a pure function of the seed and the names.
void initialise(const Parameters& parameters, Backend& backend, uint64_t seed, void* values,
                void* running);

// One tensor between its place in the array, which may be device memory, and canonical row-major
// order (f32, host memory).
void to_canonical(const Parameter& parameter, Backend& backend, const void* array, float* out);
void from_canonical(const Parameter& parameter, Backend& backend, const float* in, void* array);
void to_canonical(const RunningValue& value, Backend& backend, const void* array, float* out);
void from_canonical(const RunningValue& value, Backend& backend, const float* in, void* array);

}  // namespace trireme
