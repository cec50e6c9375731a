// Ops and their plans. An op is planned once and then encoded any number of times.
//
// A descriptor (a small struct; each header in this folder declares some) states what is computed;
// its `Arg` enumerates the tensors that the op takes, in order. `Backend::plan` takes the
// descriptor and the specs of those tensors, chooses implementations and layouts, checks the specs,
// and returns a plan. `OpPlan::encode` queues the work. It does not allocate, look anything up or
// block, and can therefore be captured into a graph.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"

namespace trireme::ops {

// The data of the tensors in the order of the descriptor's Arg. Null for an absent optional tensor.
using Args = std::span<void* const>;
// Returns args[arg] as a pointer to T.
template <class T>
T* pointer(Args args, int arg) {
  return static_cast<T*>(args[static_cast<size_t>(arg)]);
}

// Return the spec of an absent optional tensor, and of a workspace whose size the plan chooses.
inline TensorSpec absent() { return {DType::kU8, Shape{0}, Layout::row_major()}; }
inline TensorSpec unsized_workspace() { return {DType::kU8, Shape{0}, Layout::any()}; }
inline bool is_absent(const TensorSpec& spec) {
  return spec.shape.elements() == 0 && !spec.layout.is_any();
}

// An op with fixed specs. Created by Backend::plan.
class OpPlan {
 public:
  explicit OpPlan(std::vector<TensorSpec> specs);
  virtual ~OpPlan();

  // Returns the specs that the plan requires. Every Layout::any() has been replaced. A requested
  // layout may be replaced if the plan would be slow or impossible with it, and a low-precision
  // dtype may be replaced by f32; the caller then inserts a Reorder.
  std::span<const TensorSpec> specs() const { return specs_; }

  // Returns the bytes of scratch memory that encode needs (aligned as in core/alignment.h). The
  // memory can be reused when the work is done.
  virtual size_t scratch_bytes() const { return 0; }
  // Queues the work on the stream. The plan, the array `args` and the scratch memory must remain
  // valid and unchanged until the work is done.
  virtual void encode(Stream& stream, Args args, void* scratch) const = 0;

 private:
  std::vector<TensorSpec> specs_;
};

}  // namespace trireme::ops
