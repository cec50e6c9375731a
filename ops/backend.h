// Op, the variant of all ops, and the backends that plan them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/batch_norm.h"
#include "ops/cached_attention.h"
#include "ops/class_token.h"
#include "ops/conv2d.h"
#include "ops/dense.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/group_norm.h"
#include "ops/key_ranges.h"
#include "ops/layer_norm.h"
#include "ops/linear_cross_entropy.h"
#include "ops/loss.h"
#include "ops/loss_scale.h"
#include "ops/op.h"
#include "ops/op_info.h"
#include "ops/optimizer.h"
#include "ops/pool.h"
#include "ops/pool_tokens.h"
#include "ops/recurrent.h"
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

// Plans ops for a device.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  // Returns a plan for the op. `specs` are in the order of the op's Arg. Throws Error if no
  // implementation supports them.
  virtual std::unique_ptr<OpPlan> plan(const Op& op, Specs specs) = 0;
};

struct CpuOptions {
  // Whether products of bf16 tensors are computed in f32, on copies of them. By default they are if
  // the CPU has no instructions to multiply bf16.
  std::optional<bool> bf16_in_f32 = std::nullopt;
};
// Returns the CPU backend: oneDNN, and Trireme's own loops for ops that oneDNN lacks.
std::unique_ptr<Backend> create_cpu_backend(Device& device, const CpuOptions& options = {});
// Returns true if networks can compute in this dtype on this CPU: always for f32, and for bf16 if
// the CPU has AVX-512.
bool cpu_computes_in(DType dtype);
struct CudaOptions {
  // Allows f32 convolutions and matrix products to round their inputs to TF32.
  bool tf32 = false;
  // Folder in which the fastest implementations found by measurement are cached; empty disables the
  // cache.
  std::string tuning_cache;
  // If false, uses the cached implementation, or the first one that can be built. For tests, in
  // which measuring would take longer than the test itself.
  bool measure = true;
};
// Returns the backend for a CUDA device: cuDNN, cuBLASLt and Trireme's own kernels. Throws
// DeviceError if a required library cannot be loaded.
std::unique_ptr<Backend> create_cuda_backend(Device& device, const CudaOptions& options);

std::string_view name_of(const Op& op);  // e.g. "conv2d_backward_data"
// Returns the number of floating-point operations of convolutions and dense layers (a multiply-add
// counts as two), and 0 for other ops, whose time depends on the bytes they access.
double flops(const Op& op, Specs specs);
// Returns the pairs of arguments {output, input} that may share memory.
std::span<const std::pair<int, int>> aliases(const Op& op);
// Returns true if the op writes the argument, false if it only reads it.
bool is_output(const Op& op, int arg);
// Throws Error with the op, the tensor, its shape and the required shape if a shape does not fit.
void check_shapes(const Op& op, Specs specs);

}  // namespace trireme::ops
