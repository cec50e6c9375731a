// The bias and activation of convolutions and dense layers, if the library does not compute them. y
// and dy are [N, C] or, in channels-last order, [N, C, H, W].
#pragma once

#include <cstdint>

#include "ops/activation.h"
#include "ops/op.h"

namespace trireme::ops::cuda {

// y = activation(y + bias).
class BiasActivation {
 public:
  // `bias` may be absent. `activation` must be kNone or have derivative_uses_output.
  BiasActivation(const TensorSpec& y, const TensorSpec& bias, Activation activation);

  void encode(Stream& stream, void* y, const void* bias) const;

 private:
  DType y_, bias_;
  int64_t count_, channels_;
  Activation activation_;
};

// dbias = sum of dy per channel, or added to dbias.
class BiasGradient {
 public:
  BiasGradient(const TensorSpec& dy, const TensorSpec& dbias, bool accumulate, Device& device);

  size_t scratch_bytes() const { return scratch_bytes_; }
  void encode(Stream& stream, const void* dy, void* dbias, void* scratch) const;

 private:
  Device& device_;
  DType dy_, dbias_;
  int64_t rows_, channels_;
  bool accumulate_;
  size_t scratch_bytes_;
};

}  // namespace trireme::ops::cuda
