// Addition, concatenation, splitting and conversion of tensors.
#pragma once

#include <vector>

#include "ops/op_info.h"

namespace trireme::ops {

// y = a + b, same shape. y may be a or b.
struct Add {
  enum Arg { kA, kB, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

// Concatenates `inputs` tensors along axis 1. Args: kY, then the inputs in order.
struct Concat {
  enum Arg { kY, kFirstInput };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int inputs = 2;
};

// Splits x into `outputs` tensors along axis 1. Args: kX, then the outputs in order.
struct Split {
  enum Arg { kX, kFirstOutput };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int outputs = 2;
};

// Converts a tensor to another layout, another floating-point dtype, or both. Both have the same
// shape.
struct Reorder {
  enum Arg { kFrom, kTo, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

// Converts stored inputs (u8 or f32, row-major or channels-last) to the network's dtype and layout:
// y = (x * scale - mean[c]) / stddev[c]. mean and stddev have one value per channel, or one for
// all.
struct NormalizeInput {
  enum Arg { kX, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float scale = 1;
  std::vector<float> mean{0};
  std::vector<float> stddev{1};
};

}  // namespace trireme::ops
