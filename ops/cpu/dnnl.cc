#include "ops/cpu/dnnl.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace trireme::ops::cpu {
namespace {

using dnnl::memory;

memory::dims row_major_strides(const memory::dims& dims) {
  memory::dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(dims[i], 1);
  return strides;
}

memory::dims channels_last_strides(const memory::dims& dims) {
  memory::dims moved = dims;  // N, C, spatial... -> N, spatial..., C
  std::rotate(moved.begin() + 1, moved.begin() + 2, moved.end());
  memory::dims strides = row_major_strides(moved);
  std::rotate(strides.begin() + 1, strides.end() - 1, strides.end());
  return strides;
}

void check(dnnl_status_t status, const char* call) {
  if (status != dnnl_success) throw DeviceError(call, dnnl_status2str(status));
}

}  // namespace

bool DnnlLayout::equals(const OpaqueLayout& other) const {
  const auto* same_kind = dynamic_cast<const DnnlLayout*>(&other);
  return same_kind && same_kind->desc_ == desc_;
}

// Names the layout like a oneDNN tag: one letter per dimension, outermost first, in upper case if
// the dimension is split into the inner blocks that follow.
std::string DnnlLayout::name() const {
  const dnnl_memory_desc_t& data = desc_.data;
  if (data.format_kind != dnnl_blocked) return "opaque";
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  std::vector<int> order(static_cast<size_t>(data.ndims));
  for (int i = 0; i < data.ndims; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return blocking.strides[a] > blocking.strides[b]; });
  std::string text;
  for (int i : order) {
    const bool split = std::find(blocking.inner_idxs, blocking.inner_idxs + blocking.inner_nblks,
                                 i) != blocking.inner_idxs + blocking.inner_nblks;
    text += static_cast<char>((split ? 'A' : 'a') + i);
  }
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    text += fmt::format("{}{}", blocking.inner_blks[i],
                        static_cast<char>('a' + blocking.inner_idxs[i]));
  }
  return text;
}

memory::data_type to_dnnl(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return memory::data_type::f32;
    case DType::kF16:
      return memory::data_type::f16;
    case DType::kBF16:
      return memory::data_type::bf16;
    case DType::kI32:
      return memory::data_type::s32;
    case DType::kU8:
      return memory::data_type::u8;
    case DType::kF64:
    case DType::kI64:
      break;
  }
  throw Error(fmt::format("the CPU backend does not compute in {}", name_of(dtype)));
}

memory::dims to_dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

memory::desc to_desc(const TensorSpec& spec) { return to_desc(spec, to_dims(spec.shape)); }

memory::desc to_desc(const TensorSpec& spec, const memory::dims& dims) {
  const memory::data_type type = to_dnnl(spec.dtype);
  switch (spec.layout.kind()) {
    case Layout::Kind::kAny:
      return {dims, type, memory::format_tag::any};
    case Layout::Kind::kRowMajor:
      return {dims, type, row_major_strides(dims)};
    case Layout::Kind::kChannelsLast:
      return {dims, type, dims.size() < 3 ? row_major_strides(dims) : channels_last_strides(dims)};
    case Layout::Kind::kBlocked:
      break;
  }
  const auto* layout = dynamic_cast<const DnnlLayout*>(spec.layout.opaque());
  if (!layout || static_cast<size_t>(layout->desc().data.ndims) != dims.size()) {
    throw Error(fmt::format("the CPU backend does not know the layout of {}", spec.to_string()));
  }
  memory::desc desc = layout->desc();
  desc.data.data_type = dnnl::memory::convert_to_c(type);
  return desc;
}

TensorSpec with_layout(const TensorSpec& spec, const memory::desc& desc) {
  const memory::dims dims = desc.dims();
  const memory::data_type type = desc.data_type();
  if (desc == memory::desc(dims, type, row_major_strides(dims))) {
    return spec.with(Layout::row_major());
  }
  if (dims.size() == 4 && spec.shape.rank() == 4 &&
      desc == memory::desc(dims, type, channels_last_strides(dims))) {
    return spec.with(Layout::channels_last());
  }
  return spec.with(Layout(std::make_shared<DnnlLayout>(desc)));
}

bool is_slow(const char* implementation) {
  return std::strstr(implementation, "ref") || std::strstr(implementation, "gemm:");
}

bool has_instructions(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);  // a set of bits
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

dnnl::primitive_attr scratch_by_caller() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

dnnl::algorithm to_dnnl(Activation activation) {
  using dnnl::algorithm;
  switch (activation) {
    case Activation::kRelu:
      return algorithm::eltwise_relu_use_dst_for_bwd;
    case Activation::kSigmoid:
      return algorithm::eltwise_logistic_use_dst_for_bwd;
    case Activation::kTanh:
      return algorithm::eltwise_tanh_use_dst_for_bwd;
    case Activation::kGelu:
      return algorithm::eltwise_gelu_erf;
    case Activation::kGeluTanh:
      return algorithm::eltwise_gelu_tanh;
    case Activation::kSilu:
      return algorithm::eltwise_swish;
    case Activation::kNone:
      break;
  }
  return algorithm::eltwise_linear;
}

dnnl::primitive_attr with_activation(Activation activation) {
  dnnl::primitive_attr attr = scratch_by_caller();
  if (activation == Activation::kNone) return attr;
  // Post-ops do not support the algorithms for a backward pass from the output; the results are the
  // same.
  dnnl::algorithm how = to_dnnl(activation);
  if (activation == Activation::kRelu) how = dnnl::algorithm::eltwise_relu;
  if (activation == Activation::kSigmoid) how = dnnl::algorithm::eltwise_logistic;
  if (activation == Activation::kTanh) how = dnnl::algorithm::eltwise_tanh;
  dnnl::post_ops ops;
  ops.append_eltwise(1, how, activation == Activation::kSilu ? 1.f : 0.f, 0);
  attr.set_post_ops(ops);
  return attr;
}

BoundPrimitive::BoundPrimitive(std::shared_ptr<Engine> engine, const dnnl::primitive& primitive,
                               std::span<const Argument> arguments)
    : engine_(std::move(engine)), primitive_(primitive), data_(arguments.size()) {
  for (const Argument& argument : arguments) {
    memories_.push_back(memory(argument.desc, engine_->engine, DNNL_MEMORY_NONE));
    exec_args_.push_back({argument.dnnl_arg, memories_.back().get()});
  }
}

void BoundPrimitive::run(std::span<void* const> data) const {
  for (size_t i = 0; i < data_.size(); ++i) {
    // Setting the pointer also clears the padding of blocked layouts, which costs a pass over
    // memory.
    if (data[i] == data_[i]) continue;
    check(dnnl_memory_set_data_handle_v2(memories_[i].get(), data[i], engine_->stream.get()),
          "dnnl_memory_set_data_handle_v2");
    data_[i] = data[i];
  }
  check(dnnl_primitive_execute(primitive_.get(), engine_->stream.get(),
                               static_cast<int>(exec_args_.size()), exec_args_.data()),
        "dnnl_primitive_execute");
}

PrimitivePlan::PrimitivePlan(std::shared_ptr<Engine> engine, std::vector<TensorSpec> specs,
                             const dnnl::primitive& primitive, const std::vector<Binding>& bindings,
                             const memory::desc& scratchpad)
    : OpPlan(std::move(specs)), scratch_bytes_(scratchpad.get_size()) {
  std::vector<BoundPrimitive::Argument> arguments;
  for (const Binding& binding : bindings) {
    arguments.push_back({binding.dnnl_arg, binding.desc});
    positions_.push_back(binding.position);
  }
  if (scratch_bytes_ > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad});
  primitive_.emplace(std::move(engine), primitive, arguments);
}

void PrimitivePlan::encode(Stream& stream, Args args, void* scratch) const {
  std::array<void*, kMaxArgs> copy{};
  std::copy(args.begin(), args.end(), copy.begin());
  stream.run(Task([this, copy, scratch] { execute(copy.data(), scratch); }));
}

void PrimitivePlan::execute(void* const* args, void* scratch) const {
  std::array<void*, kMaxArgs + 1> data{};
  std::ranges::transform(positions_, data.begin(), [&](int position) { return args[position]; });
  data[positions_.size()] = scratch;
  primitive_->run(data);
}

}  // namespace trireme::ops::cpu
