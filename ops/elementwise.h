// Sums, joins and conversions.
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

// Joins `inputs` tensors along axis 1. Args: kY, then the inputs in order.
struct Concat {
  enum Arg { kY, kFirstInput };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int inputs = 2;
};

// The reverse. Args: kX, then the outputs in order.
struct Split {
  enum Arg { kX, kFirstOutput };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int outputs = 2;
};

// The same values in another layout or dtype, same shape.
struct Reorder {
  enum Arg { kFrom, kTo, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

// Inputs as stored (u8 or f32, row-major or channels-last) to what the network computes with:
// y = (x * scale - mean[c]) / deviation[c]. One mean and deviation a channel, or one for all.
struct NormalizeInput {
  enum Arg { kX, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float scale = 1;
  std::vector<float> mean{0};
  std::vector<float> deviation{1};
};

}  // namespace trireme::ops
