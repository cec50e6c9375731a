// Shared oneDNN helpers: layouts, the engine, and a plan that runs one primitive.
#pragma once

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <vector>

#include "ops/activation.h"
#include "ops/op.h"

namespace trireme::ops::cpu {

// The oneDNN engine and stream. One per backend, shared with its plans.
struct Engine {
  explicit Engine(bool in_f32) : bf16_in_f32(in_f32) {}

  bool bf16_in_f32;  // see CpuOptions
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

// Returns whether oneDNN may use all of these instructions.
bool has_instructions(dnnl::cpu_isa isa);

// A oneDNN layout that is neither row-major nor channels-last. Applies to elements of any type.
class DnnlLayout final : public OpaqueLayout {
 public:
  explicit DnnlLayout(dnnl::memory::desc desc) : desc_(std::move(desc)) {
    desc_.data.data_type = dnnl_f32;
  }
  int64_t elements() const override { return static_cast<int64_t>(desc_.get_size() / 4); }
  bool equals(const OpaqueLayout& other) const override;
  std::string name() const override;

  // The data type of the descriptor is f32.
  const dnnl::memory::desc& desc() const { return desc_; }

 private:
  dnnl::memory::desc desc_;
};

// Throws Error if oneDNN lacks the type.
dnnl::memory::data_type to_dnnl(DType dtype);
dnnl::memory::dims to_dims(const Shape& shape);

// Returns the descriptor of a tensor, viewed with dimensions `dims` (by default its own; weights of
// grouped convolutions have one more dimension in oneDNN). Layout::any() leaves the choice to
// oneDNN.
dnnl::memory::desc to_desc(const TensorSpec& spec);
dnnl::memory::desc to_desc(const TensorSpec& spec, const dnnl::memory::dims& dims);
// Returns `spec` with the layout of `desc`.
TensorSpec with_layout(const TensorSpec& spec, const dnnl::memory::desc& desc);

// Returns true if an implementation is one of oneDNN's slow fallbacks: reference loops or a general
// matrix product.
bool is_slow(const char* implementation);

// Returns make(), or nullopt if oneDNN has no implementation. Rethrows other errors.
template <class Make>
auto try_plan(Make make) -> std::optional<decltype(make())> {
  try {
    return make();
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented && error.status != dnnl_invalid_arguments) throw;
    return std::nullopt;
  }
}

// Returns the attribute that all primitives here have: the caller provides scratch memory.
dnnl::primitive_attr scratch_by_caller();
// Returns the same attribute with a fused activation of the result.
dnnl::primitive_attr with_activation(Activation activation);
// Returns oneDNN's forward algorithm, the variant whose derivative uses the output if
// derivative_uses_output.
dnnl::algorithm to_dnnl(Activation activation);

// A primitive with memory objects of its own, which are created once: running it only sets their
// pointers. Must not run twice concurrently.
class BoundPrimitive {
 public:
  struct Argument {
    int dnnl_arg;  // DNNL_ARG_SRC...
    dnnl::memory::desc desc;
  };
  BoundPrimitive(std::shared_ptr<Engine> engine, const dnnl::primitive& primitive,
                 std::span<const Argument> arguments);
  BoundPrimitive(BoundPrimitive&&) = default;
  BoundPrimitive& operator=(BoundPrimitive&&) = default;

  // `data` has a pointer for each argument.
  void run(std::span<void* const> data) const;

 private:
  std::shared_ptr<Engine> engine_;
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  mutable std::vector<void*> data_;
  std::vector<dnnl_exec_arg_t> exec_args_;
};

// A plan that runs one oneDNN primitive, and must not run twice concurrently.
class PrimitivePlan final : public OpPlan {
 public:
  struct Binding {
    int dnnl_arg;
    int position;  // in Args
    dnnl::memory::desc desc;
  };
  PrimitivePlan(std::shared_ptr<Engine> engine, std::vector<TensorSpec> specs,
                const dnnl::primitive& primitive, const std::vector<Binding>& bindings,
                const dnnl::memory::desc& scratchpad);

  size_t scratch_bytes() const override { return scratch_bytes_; }
  void encode(Stream& stream, Args args, void* scratch) const override;

 private:
  static constexpr int kMaxArgs = 6;
  void execute(void* const* args, void* scratch) const;

  std::vector<int> positions_;
  size_t scratch_bytes_;
  std::optional<BoundPrimitive> primitive_;
};

}  // namespace trireme::ops::cpu
