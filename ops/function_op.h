// Helpers that create plans from functions.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ops/op.h"

namespace trireme::ops {

template <class Work>
class FunctionOp final : public OpPlan {
 public:
  FunctionOp(std::vector<TensorSpec> specs, Work work, size_t scratch_bytes)
      : OpPlan(std::move(specs)), work_(std::move(work)), scratch_bytes_(scratch_bytes) {}

  size_t scratch_bytes() const override { return scratch_bytes_; }
  void encode(Stream& stream, Args args, void* scratch) const override {
    work_(stream, args, scratch);
  }

 private:
  Work work_;
  size_t scratch_bytes_;
};

// Returns a plan whose encode calls work(stream, args, scratch). `work` queues all work and must
// read `args` before it returns.
template <class Work>
std::unique_ptr<OpPlan> function_op(std::vector<TensorSpec> specs, Work work,
                                    size_t scratch_bytes = 0) {
  return std::make_unique<FunctionOp<Work>>(std::move(specs), std::move(work), scratch_bytes);
}

// Returns a plan that runs work(args, scratch) on the host, as a task of the stream.
template <class Work>
std::unique_ptr<OpPlan> host_op(std::vector<TensorSpec> specs, Work work,
                                size_t scratch_bytes = 0) {
  return function_op(
      std::move(specs),
      [work = std::move(work)](Stream& stream, Args args, void* scratch) {
        stream.run(Task([&work, args, scratch] { work(args, scratch); }));
      },
      scratch_bytes);
}

}  // namespace trireme::ops
