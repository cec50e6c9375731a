// Every operation there is, and who can plan them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/batch_norm.h"
#include "ops/conv2d.h"
#include "ops/dense.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/group_norm.h"
#include "ops/layer_norm.h"
#include "ops/loss.h"
#include "ops/loss_scale.h"
#include "ops/op.h"
#include "ops/op_info.h"
#include "ops/optimizer.h"
#include "ops/pool.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace trireme::ops {

namespace internal {
template <class, class... Ops>
using VariantAfter = std::variant<Ops...>;
}  // namespace internal

#define TRIREME_OP(Descriptor) , Descriptor
using Op = internal::VariantAfter<void
#include "ops/ops.def"
                                  >;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  // Specs in the order of the op's Arg. Throws Error when no implementation takes them.
  virtual std::unique_ptr<OpPlan> plan(const Op& op, Specs specs) = 0;
};

// oneDNN, and our own loops where it has none.
std::unique_ptr<Backend> create_cpu_backend(Device& device);
// Whether networks can compute in it on this CPU: f32 always, bf16 from AVX-512 on.
bool cpu_computes_in(DType dtype);
struct CudaOptions {
  // Convolutions and matrix products of f32 may round their inputs to TF32.
  bool tf32 = false;
  // Folder that remembers which implementations were measured to be fastest; empty: none.
  std::string tuning_cache;
  // Off: the first implementation that can be built is taken, unless the folder remembers another.
  // For tests, where planning would take longer than what is tested.
  bool measure = true;
};
// cuDNN, cuBLASLt and our own kernels, on a CUDA device. Throws DeviceError when a library that it
// needs cannot be loaded.
std::unique_ptr<Backend> create_cuda_backend(Device& device, const CudaOptions& options);

std::string_view name_of(const Op& op);  // "conv2d_backward_data"
// Floating-point operations (a multiply-add is two) of convolutions and dense layers; 0 for the
// rest, whose time is that of their bytes.
double flops(const Op& op, Specs specs);
// Pairs of argument positions {output, input} that may be the same memory.
std::span<const std::pair<int, int>> aliases(const Op& op);
// Whether the argument is written (true) or only read.
bool is_output(const Op& op, int arg);
// Throws Error naming the op, the tensor, the shape it got and the one that would fit.
void check_shapes(const Op& op, Specs specs);

}  // namespace trireme::ops
