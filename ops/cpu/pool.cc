// Pooling with oneDNN.
#include "ops/pool.h"

#include "ops/cpu/dnnl.h"
#include "ops/cpu/plans.h"

namespace trireme::ops::cpu {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using Bindings = std::vector<PrimitivePlan::Binding>;

struct Problem {
  algorithm how;
  PoolGeometry geometry;
  memory::desc x, y;
  EnginePtr engine;

  memory::dims kernel() const { return {geometry.kernel[0], geometry.kernel[1]}; }
  memory::dims strides() const { return {geometry.stride[0], geometry.stride[1]}; }
  memory::dims padding() const { return {geometry.padding[0], geometry.padding[1]}; }
};

// Returns the layout for both x and y: that of x if it is chosen, otherwise that of y.
Layout common_layout(const TensorSpec& first, const TensorSpec& second) {
  if (!first.layout.is_any()) return first.layout;
  return second.layout.is_any() ? Layout::row_major() : second.layout;
}

memory::desc in_layout(const TensorSpec& spec, const memory::desc& like, const Layout& layout) {
  if (layout.kind() != Layout::Kind::kBlocked) return to_desc(spec.with(layout));
  // The same channel blocks with another number of positions.
  const memory::dims dims = to_dims(spec.shape);
  for (auto tag : {memory::format_tag::nChw16c, memory::format_tag::nChw8c}) {
    if (like == memory::desc(like.dims(), like.data_type(), tag)) {
      return {dims, to_dnnl(spec.dtype), tag};
    }
  }
  return to_desc(spec.with(Layout::channels_last()));
}

Problem problem(const EnginePtr& engine, algorithm how, const PoolGeometry& geometry,
                const TensorSpec& x, const TensorSpec& y) {
  // oneDNN 2.6 loses the positions of maxima in bf16 if it vectorizes over channels and a position
  // in the window does not fit into a byte.
  const bool loses_positions = how == algorithm::pooling_max && x.dtype == DType::kBF16 &&
                               geometry.kernel[0] * geometry.kernel[1] > 256;
  Layout layout = loses_positions ? Layout::row_major() : common_layout(x, y);
  const TensorSpec& known = x.layout.is_any() ? y : x;
  memory::desc like = to_desc(known.with(layout));
  memory::desc x_desc = in_layout(x, like, layout);
  memory::desc y_desc = in_layout(y, like, layout);
  return {how, geometry, x_desc, y_desc, engine};
}

dnnl::pooling_forward::primitive_desc forward_desc(const Problem& p, dnnl::prop_kind kind) {
  return {dnnl::pooling_forward::desc(kind, p.how, p.x, p.y, p.strides(), p.kernel(), p.padding(),
                                      p.padding()),
          scratch_by_caller(), p.engine->engine};
}

dnnl::pooling_backward::primitive_desc backward_desc(const Problem& p) {
  return {dnnl::pooling_backward::desc(p.how, p.x, p.y, p.strides(), p.kernel(), p.padding(),
                                       p.padding()),
          scratch_by_caller(), p.engine->engine,
          forward_desc(p, dnnl::prop_kind::forward_training)};
}

algorithm average(bool include_padding) {
  return include_padding ? algorithm::pooling_avg_include_padding
                         : algorithm::pooling_avg_exclude_padding;
}

}  // namespace

Plan plan(const MaxPoolForward& op, const EnginePtr& engine, Specs given) {
  using Op = MaxPoolForward;
  const bool training = !is_absent(given[Op::kWorkspace]);
  const Problem p =
      problem(engine, algorithm::pooling_max, op.geometry, given[Op::kX], given[Op::kY]);
  const auto desc = forward_desc(
      p, training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference);
  Bindings bindings{{DNNL_ARG_SRC, Op::kX, desc.src_desc()},
                    {DNNL_ARG_DST, Op::kY, desc.dst_desc()}};
  TensorSpec workspace = absent();
  if (training) {
    bindings.push_back({DNNL_ARG_WORKSPACE, Op::kWorkspace, desc.workspace_desc()});
    workspace.shape = {static_cast<int64_t>(desc.workspace_desc().get_size())};
  }
  return std::make_unique<PrimitivePlan>(
      engine,
      std::vector{with_layout(given[Op::kX], p.x), with_layout(given[Op::kY], p.y), workspace},
      dnnl::pooling_forward(desc), std::move(bindings), desc.scratchpad_desc());
}

Plan plan(const MaxPoolBackward& op, const EnginePtr& engine, Specs given) {
  using Op = MaxPoolBackward;
  const Problem p =
      problem(engine, algorithm::pooling_max, op.geometry, given[Op::kDx], given[Op::kDy]);
  const auto desc = backward_desc(p);
  return std::make_unique<PrimitivePlan>(
      engine,
      std::vector{with_layout(given[Op::kDy], p.y), given[Op::kWorkspace],
                  with_layout(given[Op::kDx], p.x)},
      dnnl::pooling_backward(desc),
      Bindings{{DNNL_ARG_DIFF_DST, Op::kDy, desc.diff_dst_desc()},
               {DNNL_ARG_WORKSPACE, Op::kWorkspace, desc.workspace_desc()},
               {DNNL_ARG_DIFF_SRC, Op::kDx, desc.diff_src_desc()}},
      desc.scratchpad_desc());
}

Plan plan(const AveragePoolForward& op, const EnginePtr& engine, Specs given) {
  using Op = AveragePoolForward;
  const Problem p =
      problem(engine, average(op.include_padding), op.geometry, given[Op::kX], given[Op::kY]);
  const auto desc = forward_desc(p, dnnl::prop_kind::forward_training);
  return std::make_unique<PrimitivePlan>(
      engine, std::vector{with_layout(given[Op::kX], p.x), with_layout(given[Op::kY], p.y)},
      dnnl::pooling_forward(desc),
      Bindings{{DNNL_ARG_SRC, Op::kX, desc.src_desc()}, {DNNL_ARG_DST, Op::kY, desc.dst_desc()}},
      desc.scratchpad_desc());
}

Plan plan(const AveragePoolBackward& op, const EnginePtr& engine, Specs given) {
  using Op = AveragePoolBackward;
  const Problem p =
      problem(engine, average(op.include_padding), op.geometry, given[Op::kDx], given[Op::kDy]);
  const auto desc = backward_desc(p);
  return std::make_unique<PrimitivePlan>(
      engine, std::vector{with_layout(given[Op::kDy], p.y), with_layout(given[Op::kDx], p.x)},
      dnnl::pooling_backward(desc),
      Bindings{{DNNL_ARG_DIFF_DST, Op::kDy, desc.diff_dst_desc()},
               {DNNL_ARG_DIFF_SRC, Op::kDx, desc.diff_src_desc()}},
      desc.scratchpad_desc());
}

}  // namespace trireme::ops::cpu
