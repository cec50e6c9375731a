// Algorithm: one of the implementations that a library offers for an operation.
#pragma once

#include <fmt/format.h>

#include <memory>

#include "ops/op.h"

namespace trireme::ops::cuda {

// Thrown if no library supports an operation.
class Unsupported : public Error {
 public:
  using Error::Error;
};

// An implementation of an operation, e.g. a cuDNN engine. Shared by plans.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual size_t workspace_bytes() const = 0;
  // Queues the work. The order of `args` is documented with the operation (Convolution,
  // MatrixProduct). The rules of OpPlan::encode apply.
  virtual void run(Stream& stream, Args args, void* workspace) const = 0;
};
using AlgorithmPtr = std::shared_ptr<const Algorithm>;

inline void* const kNoTensor = nullptr;  // passed for an absent argument

// Returns find(...), or null if it throws Unsupported.
template <class Find, class... Arguments>
AlgorithmPtr find_or_null(Find find, const Arguments&... arguments) {
  try {
    return find(arguments...);
  } catch (const Unsupported&) {
    return nullptr;
  }
}

// Returns the dtype of both tensors. Throws Unsupported if they differ, because libraries only
// multiply tensors of the same dtype.
inline DType common_dtype(const TensorSpec& a, const TensorSpec& b) {
  if (a.dtype == b.dtype) return a.dtype;
  throw Unsupported(fmt::format("cannot multiply {} by {}", name_of(a.dtype), name_of(b.dtype)));
}

}  // namespace trireme::ops::cuda
