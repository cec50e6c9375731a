// The parameters and running statistics of a network, and their offsets in flat arrays. Arrays of
// gradients and optimizer state have the same layout as the trained parameters. Frozen parameters
// follow the trained ones and have neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "ops/backend.h"

namespace trireme::model {

struct Initializer {
  // kSinusoidal: sines and cosines of positions, [T, C] (Vaswani et al., arXiv:1706.03762).
  enum class Kind { kUniform, kNormal, kConstant, kSinusoidal } kind = Kind::kConstant;
  float mean = 0;   // or the constant
  float width = 0;  // standard deviation (normal) or half the length of the interval (uniform)
};

struct Parameter {
  std::string name;  // "layer1.0.conv1.weight"
  // Its spec in the arrays: the shape is that of PyTorch, the layout that of the fastest plan.
  TensorSpec spec;
  // The dtype in which the network reads it: Parameters::dtype or Parameters::array_dtype().
  DType dtype = DType::kF32;
  Initializer init;
  bool decays = true;   // whether weight decay applies; false for biases and norms
  bool frozen = false;  // not trained (ModelConfig::freeze), so only in the array of parameters
  int index = 0;        // among the parameters of the whole network
  // The pipeline stages that have it, ascending; empty without a pipeline. Several have a parameter
  // that layers share.
  std::vector<int> stages = {};
  int64_t begin = 0;  // first element in the arrays
  int64_t end = 0;    // one past the last element, including the padding of blocked layouts

  // Returns its address in an array of Parameters::array_dtype().
  void* at(void* array) const {
    return static_cast<std::byte*>(array) + begin * static_cast<int64_t>(size_of(spec.dtype));
  }
};

// State that is updated in training but not by the optimizer, like a buffer of a PyTorch module:
// the running mean or variance of a batch norm. Row-major.
struct RunningStatistic {
  std::string name;  // "bn1.running_mean"
  TensorSpec spec;
  float initial = 0;
  bool frozen = false;  // belongs to a frozen layer, so it is read and never updated
  int index = 0;        // among the statistics of the whole network
  int64_t begin = 0;    // first element in the array of running statistics

  void* at(void* array) const {
    return static_cast<std::byte*>(array) + begin * static_cast<int64_t>(size_of(spec.dtype));
  }
};

struct Parameters {
  DType dtype = DType::kF32;  // the compute dtype of the network
  // Returns the dtype of the arrays of parameters, gradients, optimizer state and running
  // statistics: f32 whatever the compute dtype, or f64 in the reference backend.
  DType array_dtype() const { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
  bool low_precision() const { return dtype != array_dtype(); }
  // The gradient array starts with kMetricCount slots for metrics. Parameters follow in the order
  // in which their gradients become final, frozen ones last.
  std::vector<Parameter> all;
  // What other pipeline stages have of the network. It has layouts, but no place in the arrays.
  std::vector<Parameter> of_other_stages;
  int64_t trained_elements = 0;  // size of gradients and optimizer state, including metrics
  // The ends of the gradient buckets. Each bucket is a range of the gradient array, and begins
  // where the one before ends. The last end is trained_elements.
  std::vector<int64_t> bucket_ends;
  int64_t elements = 0;  // size of the array of parameters, including frozen ones
  std::vector<RunningStatistic> running_stats;
  std::vector<RunningStatistic> running_stats_of_other_stages;
  int64_t updated_stat_elements = 0;  // elements that training updates; frozen ones follow
  int64_t running_stat_elements = 0;  // size of the array of running statistics
  // Return the number of values in all (or the trained) parameters of the network, also in those of
  // other pipeline stages, without padding.
  int64_t count() const;
  int64_t trained_count() const;
  size_t array_bytes() const { return elements * size_of(array_dtype()); }
  size_t trained_bytes() const { return trained_elements * size_of(array_dtype()); }
  size_t running_stat_bytes() const { return running_stat_elements * size_of(array_dtype()); }
};

// Returns the index of the bucket that has the gradient of a trained parameter.
size_t bucket_of(const Parameters& parameters, const Parameter& parameter);

// The copy of the parameters that a network in BF16 or FP16 reads: the same elements as in the
// array of parameters, in Parameters::dtype. The optimizer updates both; other code that changes
// parameters must call refresh(). Empty if the network computes in the dtype of the array.
class LowPrecisionCopy {
 public:
  LowPrecisionCopy() = default;
  // `allocate` returns the memory of the copy; by default it is that of the device.
  LowPrecisionCopy(const Parameters& parameters, ops::Backend& backend,
                   const std::function<Buffer(size_t bytes)>& allocate = {});

  void* data() const { return copy_.data(); }
  size_t bytes() const { return copy_.bytes(); }
  // Queues casting the array of parameters into the copy.
  void refresh(const void* values, Stream& stream) const;

 private:
  Buffer copy_;
  std::unique_ptr<ops::OpPlan> plan_;
  Buffer scratch_;
};

// Writes initial values into both arrays, and zeros into the padding between parameters. The values
// depend only on the seed and the names.
void initialize(const Parameters& parameters, ops::Backend& backend, uint64_t seed, void* values,
                void* running_stats);

// Copy one tensor between device memory, in the format `spec`, and host memory, in canonical form:
// row-major f32. Block until the copy is done.
void to_canonical(ops::Backend& backend, const TensorSpec& spec, const void* tensor, float* out);
void from_canonical(ops::Backend& backend, const float* in, const TensorSpec& spec, void* tensor);

}  // namespace trireme::model
