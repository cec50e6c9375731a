// An operation is planned once and then only encoded.
//
// A descriptor (one small struct a header in this folder) says what is computed; its `Arg` names
// the tensors it takes, in order. `Backend::plan` gets the descriptor and the specs of those
// tensors, does all choosing and all checking, and returns a plan. `OpPlan::encode` queues the
// work: it allocates nothing, looks nothing up, never waits, and is therefore safe inside a graph
// capture.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"

namespace trireme::ops {

// Where the tensors lie, in the order of the descriptor's Arg. Null where an optional one is
// absent.
using Args = std::span<void* const>;
template <class T>
T* pointer(Args args, int arg) {
  return static_cast<T*>(args[static_cast<size_t>(arg)]);
}

// The spec of an optional tensor that is absent, and of a workspace whose size the plan is to
// choose.
inline TensorSpec absent() { return {DType::kU8, Shape{0}, Layout::row_major()}; }
inline TensorSpec unsized_workspace() { return {DType::kU8, Shape{0}, Layout::any()}; }
inline bool is_absent(const TensorSpec& spec) {
  return spec.shape.elements() == 0 && !spec.layout.is_any();
}

class OpPlan {
 public:
  explicit OpPlan(std::vector<TensorSpec> specs) : specs_(std::move(specs)) {}
  virtual ~OpPlan() = default;

  // The specs as the plan wants them. Every Layout::any() has been chosen. A layout that was given
  // may come back changed when the plan would be slow or impossible with it, and so may a dtype of
  // low precision, to f32: the caller then reorders.
  std::span<const TensorSpec> specs() const { return specs_; }

  // Bytes of scratch (see core/alignment.h) that encode needs, free again when the work is done.
  virtual size_t scratch_bytes() const { return 0; }
  // Plan, table of arguments and scratch must stay as they are until the work is done.
  virtual void encode(Stream& stream, Args args, void* scratch) const = 0;

 private:
  std::vector<TensorSpec> specs_;
};

}  // namespace trireme::ops
