// Plans whose work is a few kernel launches.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ops/op.h"

namespace trireme::cuda {

// Where an argument lies; null where it is absent.
template <class T>
T* pointer(Args args, int arg) {
  return static_cast<T*>(args[static_cast<size_t>(arg)]);
}

template <class Work>
class KernelOp final : public OpPlan {
 public:
  KernelOp(std::vector<TensorSpec> specs, Work work, size_t scratch_bytes)
      : OpPlan(std::move(specs)), work_(std::move(work)), scratch_bytes_(scratch_bytes) {}

  size_t scratch_bytes() const override { return scratch_bytes_; }
  void encode(Stream& stream, Args args, void* scratch) const override {
    work_(stream, args, scratch);
  }

 private:
  Work work_;
  size_t scratch_bytes_;
};

// `work(stream, args, scratch)` launches it all, and reads `args` before it returns.
template <class Work>
std::unique_ptr<OpPlan> kernel_op(std::vector<TensorSpec> specs, Work work,
                                  size_t scratch_bytes = 0) {
  return std::make_unique<KernelOp<Work>>(std::move(specs), std::move(work), scratch_bytes);
}

}  // namespace trireme::cuda
