// The ways that a library has to do some work.
#pragma once

#include <fmt/format.h>

#include <memory>

#include "ops/op.h"

namespace trireme::ops::cuda {

// No library has a way to do it.
class Unsupported : public Error {
 public:
  using Error::Error;
};

// One way, of whatever library. Plans share it.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual size_t workspace_bytes() const = 0;
  // `args` as the one who offers it says. Under the rules of OpPlan::encode.
  virtual void run(Stream& stream, Args args, void* workspace) const = 0;
};
using AlgorithmPtr = std::shared_ptr<const Algorithm>;

inline void* const kNoTensor = nullptr;  // in the place of an argument that is absent

// What find(...) returns; null where it throws Unsupported.
template <class Find, class... Arguments>
AlgorithmPtr try_to(Find find, const Arguments&... arguments) {
  try {
    return find(arguments...);
  } catch (const Unsupported&) {
    return nullptr;
  }
}

// Of both, which libraries multiply only if it is the same.
inline DType common_dtype(const TensorSpec& a, const TensorSpec& b) {
  if (a.dtype == b.dtype) return a.dtype;
  throw Unsupported(fmt::format("{} is not multiplied by {}", name_of(a.dtype), name_of(b.dtype)));
}

}  // namespace trireme::ops::cuda
