// Convolutions with oneDNN. A list of attempts, best first, combines algorithms with layouts; the
// first for which oneDNN has a fast implementation is used. If it has none in BF16, the plan
// requires f32 instead: reordering costs less than reference loops.
#include "ops/conv2d.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/cpu/dnnl.h"
#include "ops/cpu/in_f32.h"
#include "ops/cpu/plans.h"

namespace trireme::ops::cpu {
namespace {

using dnnl::algorithm;
using dnnl::memory;

struct Problem {
  Conv2dGeometry geometry;
  TensorSpec x, weight, bias, y;
  EnginePtr engine;

  Problem in_f32() const {
    Problem p = *this;
    for (TensorSpec* spec : {&p.x, &p.weight, &p.bias, &p.y}) {
      if (!is_absent(*spec)) spec->dtype = DType::kF32;
    }
    return p;
  }
  int64_t groups() const { return geometry.groups; }
  memory::dims strides() const { return {geometry.stride[0], geometry.stride[1]}; }
  memory::dims padding() const { return {geometry.padding[0], geometry.padding[1]}; }
  // oneDNN's dilation is the number of skipped elements.
  memory::dims dilation() const { return {geometry.dilation[0] - 1, geometry.dilation[1] - 1}; }
  memory::dims weight_dims() const {
    memory::dims dims = to_dims(weight.shape);
    if (groups() == 1) return dims;
    dims[0] /= groups();
    dims.insert(dims.begin(), groups());
    return dims;
  }
};

struct Attempt {
  algorithm how = algorithm::convolution_direct;
  // Replace the requested layouts.
  std::optional<Layout> x = {}, weight = {}, y = {};
  bool slow = false;  // accepts slow implementations
};

struct Descs {
  memory::desc x, weight, bias, y;
};

// Winograd's F(4x4, 3x3) (Lavin and Gray, arXiv:1509.09308) needs a quarter of the multiplications,
// but transforms the weights in each call, so it is faster only if many tiles share them. FP32
// only, because of its rounding errors.
bool winograd_is_faster(const Problem& p) {
  const Conv2dGeometry& g = p.geometry;
  const Shape& w = p.weight.shape;
  const bool fits = w[2] == 3 && w[3] == 3 && g.groups == 1 &&
                    g.stride == std::array<int64_t, 2>{1, 1} &&
                    g.dilation == std::array<int64_t, 2>{1, 1} && p.x.dtype == DType::kF32;
  if (!fits || std::min(w[0], w[1]) < 32 || w[0] % 16 != 0 || w[1] % 16 != 0) return false;
  const int64_t height = p.y.shape[2];
  const int64_t width = p.y.shape[3];
  const int64_t tiles = (height + 3) / 4 * ((width + 3) / 4);
  return p.y.shape[0] * tiles >= 48 && 2 * height * width > 16 * tiles;
}

// More channels than an image but fewer than a vector: blocked layouts would be mostly padding.
bool has_few_channels(const Problem& p) {
  const int64_t channels = p.x.shape[1];
  return p.groups() == 1 && channels > 3 && channels < 16 &&
         has_instructions(dnnl::cpu_isa::avx512_core);
}

std::vector<Attempt> attempts(const Problem& p) {
  const Layout any = Layout::any();
  const Layout last = Layout::channels_last();
  const Layout plain = Layout::row_major();
  std::vector<Attempt> list;
  if (winograd_is_faster(p)) list.push_back({.how = algorithm::convolution_winograd});
  if (has_few_channels(p)) list.push_back({.x = last, .weight = any, .y = last});
  list.push_back({});
  list.push_back({.weight = any});
  list.push_back({.weight = any, .y = any});
  list.push_back({.x = any, .weight = any});
  list.push_back({.x = any, .weight = any, .y = any});
  list.push_back({.x = plain, .weight = plain, .y = plain, .slow = true});
  list.push_back({.x = any, .weight = any, .y = any, .slow = true});
  return list;
}

Descs describe(const Problem& p, const Attempt& a) {
  const auto chosen = [](const TensorSpec& spec, const std::optional<Layout>& layout) {
    return layout ? spec.with(*layout) : spec;
  };
  TensorSpec weight = chosen(p.weight, a.weight);
  // With groups, oneDNN's weights have five dimensions, for which channels-last has another
  // meaning.
  if (p.groups() > 1 && weight.layout == Layout::channels_last()) weight.layout = Layout::any();
  return {.x = to_desc(chosen(p.x, a.x)),
          .weight = to_desc(weight, p.weight_dims()),
          .bias = is_absent(p.bias) ? memory::desc() : to_desc(p.bias.with(Layout::row_major())),
          .y = to_desc(chosen(p.y, a.y))};
}

TensorSpec bias_spec(const Problem& p) {
  return is_absent(p.bias) ? p.bias : p.bias.with(Layout::row_major());
}

dnnl::convolution_forward::primitive_desc forward_desc(const Problem& p, const Attempt& a,
                                                       const dnnl::primitive_attr& attr) {
  const Descs d = describe(p, a);
  return {dnnl::convolution_forward::desc(dnnl::prop_kind::forward_training, a.how, d.x, d.weight,
                                          d.bias, d.y, p.strides(), p.dilation(), p.padding(),
                                          p.padding()),
          attr, p.engine->engine};
}

// Returns the forward descriptor that backward descriptors require as a hint; only its shapes
// matter.
dnnl::convolution_forward::primitive_desc forward_hint(Problem p) {
  const Layout any = Layout::any();
  p.weight.dtype = p.x.dtype;  // the gradient may have a wider dtype
  return forward_desc(p, {.x = any, .weight = any, .y = any}, {});
}

// Returns make(problem, descriptor) for the first attempt that oneDNN supports. Throws Error if
// there is none.
template <class Describe, class Make>
Plan plan_first_supported(const Problem& given, std::string_view what, Describe describe_attempt,
                          Make make) {
  const bool full = given.x.dtype == DType::kF32;
  for (const Problem& p : full ? std::vector{given} : std::vector{given, given.in_f32()}) {
    for (const Attempt& attempt : attempts(p)) {
      if (attempt.slow && p.x.dtype != DType::kF32) continue;
      auto desc = try_plan([&] { return describe_attempt(p, attempt); });
      if (desc && (attempt.slow || !is_slow(desc->impl_info_str()))) return make(p, *desc);
    }
  }
  throw Error(fmt::format("oneDNN has no {} for x {}, weight {}, y {}", what, given.x.to_string(),
                          given.weight.to_string(), given.y.to_string()));
}

}  // namespace

Plan plan(const Conv2dForward& op, const EnginePtr& engine, Specs specs) {
  if (runs_in_f32(*engine, specs)) return plan_in_f32(op, engine, specs);
  using Op = Conv2dForward;
  const Problem given{.geometry = op.geometry,
                      .x = specs[Op::kX],
                      .weight = specs[Op::kWeight],
                      .bias = specs[Op::kBias],
                      .y = specs[Op::kY],
                      .engine = engine};
  const dnnl::primitive_attr attr = with_activation(op.activation);
  return plan_first_supported(
      given, "convolution",
      [&](const Problem& p, const Attempt& a) { return forward_desc(p, a, attr); },
      [&](const Problem& p, const auto& desc) {
        std::vector<PrimitivePlan::Binding> bindings{
            {DNNL_ARG_SRC, Op::kX, desc.src_desc()},
            {DNNL_ARG_WEIGHTS, Op::kWeight, desc.weights_desc()},
            {DNNL_ARG_DST, Op::kY, desc.dst_desc()}};
        if (!is_absent(p.bias)) bindings.push_back({DNNL_ARG_BIAS, Op::kBias, desc.bias_desc()});
        return std::make_unique<PrimitivePlan>(
            engine,
            std::vector{with_layout(p.x, desc.src_desc()),
                        with_layout(p.weight, desc.weights_desc()), bias_spec(p),
                        with_layout(p.y, desc.dst_desc())},
            dnnl::convolution_forward(desc), bindings, desc.scratchpad_desc());
      });
}

Plan plan(const Conv2dBackwardData& op, const EnginePtr& engine, Specs specs) {
  if (runs_in_f32(*engine, specs)) return plan_in_f32(op, engine, specs);
  using Op = Conv2dBackwardData;
  const Problem given{.geometry = op.geometry,
                      .x = specs[Op::kDx],
                      .weight = specs[Op::kWeight],
                      .bias = absent(),
                      .y = specs[Op::kDy],
                      .engine = engine};
  return plan_first_supported(
      given, "convolution (backward data)",
      [&](const Problem& p, const Attempt& a) {
        const Descs d = describe(p, a);
        return dnnl::convolution_backward_data::primitive_desc(
            {a.how, d.x, d.weight, d.y, p.strides(), p.dilation(), p.padding(), p.padding()},
            scratch_by_caller(), engine->engine, forward_hint(p));
      },
      [&](const Problem& p, const auto& desc) {
        return std::make_unique<PrimitivePlan>(
            engine,
            std::vector{with_layout(p.y, desc.diff_dst_desc()),
                        with_layout(p.weight, desc.weights_desc()),
                        with_layout(p.x, desc.diff_src_desc())},
            dnnl::convolution_backward_data(desc),
            std::vector<PrimitivePlan::Binding>{
                {DNNL_ARG_DIFF_DST, Op::kDy, desc.diff_dst_desc()},
                {DNNL_ARG_WEIGHTS, Op::kWeight, desc.weights_desc()},
                {DNNL_ARG_DIFF_SRC, Op::kDx, desc.diff_src_desc()}},
            desc.scratchpad_desc());
      });
}

Plan plan(const Conv2dBackwardWeights& op, const EnginePtr& engine, Specs specs) {
  if (runs_in_f32(*engine, specs)) return plan_in_f32(op, engine, specs);
  using Op = Conv2dBackwardWeights;
  const Problem given{.geometry = op.geometry,
                      .x = specs[Op::kX],
                      .weight = specs[Op::kDweight],
                      .bias = specs[Op::kDbias],
                      .y = specs[Op::kDy],
                      .engine = engine};
  return plan_first_supported(
      given, "convolution (backward weights)",
      [&](const Problem& p, const Attempt& a) {
        const Descs d = describe(p, a);
        return dnnl::convolution_backward_weights::primitive_desc(
            {a.how, d.x, d.weight, d.bias, d.y, p.strides(), p.dilation(), p.padding(),
             p.padding()},
            scratch_by_caller(), engine->engine, forward_hint(p));
      },
      [&](const Problem& p, const auto& desc) {
        std::vector<PrimitivePlan::Binding> bindings{
            {DNNL_ARG_SRC, Op::kX, desc.src_desc()},
            {DNNL_ARG_DIFF_DST, Op::kDy, desc.diff_dst_desc()},
            {DNNL_ARG_DIFF_WEIGHTS, Op::kDweight, desc.diff_weights_desc()}};
        if (!is_absent(p.bias)) {
          bindings.push_back({DNNL_ARG_DIFF_BIAS, Op::kDbias, desc.diff_bias_desc()});
        }
        return std::make_unique<PrimitivePlan>(
            engine,
            std::vector{with_layout(p.x, desc.src_desc()), with_layout(p.y, desc.diff_dst_desc()),
                        with_layout(p.weight, desc.diff_weights_desc()), bias_spec(p)},
            dnnl::convolution_backward_weights(desc), bindings, desc.scratchpad_desc());
      });
}

}  // namespace trireme::ops::cpu
