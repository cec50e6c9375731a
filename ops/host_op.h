// Plans whose work is a plain function on the host.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ops/op.h"

namespace trireme {

template <class Work>
class HostOp final : public OpPlan {
 public:
  HostOp(std::vector<TensorSpec> specs, Work work, size_t scratch_bytes)
      : OpPlan(std::move(specs)), work_(std::move(work)), scratch_bytes_(scratch_bytes) {}

  size_t scratch_bytes() const override { return scratch_bytes_; }
  void encode(Stream& stream, Args args, void* scratch) const override {
    stream.run(Task([this, args, scratch] { work_(args, scratch); }));
  }

 private:
  Work work_;
  size_t scratch_bytes_;
};

// `work(args, scratch)` does it all.
template <class Work>
std::unique_ptr<OpPlan> host_op(std::vector<TensorSpec> specs, Work work,
                                size_t scratch_bytes = 0) {
  return std::make_unique<HostOp<Work>>(std::move(specs), std::move(work), scratch_bytes);
}

}  // namespace trireme
