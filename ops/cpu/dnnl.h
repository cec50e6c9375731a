// What the oneDNN parts of this folder share: layouts, the engine, and a plan that runs one
// primitive.
#pragma once

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <vector>

#include "ops/activation.h"
#include "ops/op.h"

namespace trireme::ops::cpu {

// One per backend, kept alive by its plans.
struct Engine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

// A memory order of oneDNN's that is neither row-major nor channels-last, for elements of any type.
class DnnlLayout final : public OpaqueLayout {
 public:
  explicit DnnlLayout(dnnl::memory::desc desc) : desc_(std::move(desc)) {
    desc_.data.data_type = dnnl_f32;
  }
  int64_t elements() const override { return static_cast<int64_t>(desc_.get_size() / 4); }
  bool equals(const OpaqueLayout& other) const override;
  std::string name() const override;

  // Its type is f32.
  const dnnl::memory::desc& desc() const { return desc_; }

 private:
  dnnl::memory::desc desc_;
};

// Throws Error where oneDNN has no such type.
dnnl::memory::data_type to_dnnl(DType dtype);
dnnl::memory::dims to_dims(const Shape& shape);

// Memory of that spec, seen with `dims` (by default the spec's own: convolutions with groups see
// their weights with one dimension more). Layout::any() leaves the choice to oneDNN.
dnnl::memory::desc to_desc(const TensorSpec& spec);
dnnl::memory::desc to_desc(const TensorSpec& spec, const dnnl::memory::dims& dims);
// `spec` with the layout that `desc` has.
TensorSpec with_layout(const TensorSpec& spec, const dnnl::memory::desc& desc);

// Whether oneDNN falls back on plain loops or on a general matrix product where it has something
// better.
bool is_slow(const char* implementation);

// The absence of an implementation is an answer, not a failure; anything else is thrown on.
template <class Make>
auto try_plan(Make make) -> std::optional<decltype(make())> {
  try {
    return make();
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented && error.status != dnnl_invalid_arguments) throw;
    return std::nullopt;
  }
}

// The attribute that every primitive here has: scratch memory is the caller's.
dnnl::primitive_attr scratch_by_caller();
// That, and y = activation(...) where the result is written.
dnnl::primitive_attr with_activation(Activation activation);
// Forward: the derivative is taken from the output where derivative_uses_output.
dnnl::algorithm to_dnnl(Activation activation);

// One oneDNN primitive. Its memory objects are made once; encoding only points them at the
// arguments, so one plan must not run twice at the same time.
class PrimitivePlan final : public OpPlan {
 public:
  struct Binding {
    int dnnl_arg;  // DNNL_ARG_SRC...
    int position;  // in Args
    dnnl::memory::desc desc;
  };
  PrimitivePlan(std::shared_ptr<Engine> engine, std::vector<TensorSpec> specs,
                const dnnl::primitive& primitive, std::vector<Binding> bindings,
                const dnnl::memory::desc& scratchpad);

  size_t scratch_bytes() const override { return scratch_bytes_; }
  void encode(Stream& stream, Args args, void* scratch) const override;

 private:
  struct Bound {
    int dnnl_arg;
    int position;
    dnnl::memory memory;
    mutable void* data;
  };
  static constexpr int kMaxArgs = 6;
  void execute(void* const* args, void* scratch) const;

  std::shared_ptr<Engine> engine_;
  dnnl::primitive primitive_;
  std::vector<Bound> bound_;
  std::vector<dnnl_exec_arg_t> exec_args_;
  size_t scratch_bytes_;
};

}  // namespace trireme::ops::cpu
