#include "ops/activation.h"

#include "ops/choose_layouts.h"
#include "ops/cpu/dnnl.h"
#include "ops/cpu/plans.h"

namespace trireme::ops::cpu {
namespace {

using dnnl::memory;

// Returns oneDNN's parameter alpha of the function.
float alpha_of(Activation activation) { return activation == Activation::kSilu ? 1.f : 0.f; }

dnnl::eltwise_forward::primitive_desc forward_desc(const EnginePtr& engine, Activation activation,
                                                   const memory::desc& x) {
  return {dnnl::eltwise_forward::desc(dnnl::prop_kind::forward_training, to_dnnl(activation), x,
                                      alpha_of(activation), 0),
          scratch_by_caller(), engine->engine};
}

}  // namespace

Plan plan(const ActivationForward& op, const EnginePtr& engine, Specs given) {
  using Op = ActivationForward;
  std::vector<TensorSpec> specs = in_one_layout(given);
  const auto desc = forward_desc(engine, op.activation, to_desc(specs[Op::kX]));
  return std::make_unique<PrimitivePlan>(
      engine, std::move(specs), dnnl::eltwise_forward(desc),
      std::vector<PrimitivePlan::Binding>{{DNNL_ARG_SRC, Op::kX, desc.src_desc()},
                                          {DNNL_ARG_DST, Op::kY, desc.dst_desc()}},
      desc.scratchpad_desc());
}

Plan plan(const ActivationBackward& op, const EnginePtr& engine, Specs given) {
  using Op = ActivationBackward;
  std::vector<TensorSpec> specs = in_one_layout(given);
  const memory::desc x = to_desc(specs[Op::kSaved]);
  const memory::desc dy = to_desc(specs[Op::kDy]);
  const dnnl::eltwise_backward::primitive_desc desc(
      {to_dnnl(op.activation), dy, x, alpha_of(op.activation), 0}, scratch_by_caller(),
      engine->engine, forward_desc(engine, op.activation, x));
  const int saved = derivative_uses_output(op.activation) ? DNNL_ARG_DST : DNNL_ARG_SRC;
  return std::make_unique<PrimitivePlan>(
      engine, std::move(specs), dnnl::eltwise_backward(desc),
      std::vector<PrimitivePlan::Binding>{{saved, Op::kSaved, x},
                                          {DNNL_ARG_DIFF_DST, Op::kDy, desc.diff_dst_desc()},
                                          {DNNL_ARG_DIFF_SRC, Op::kDx, desc.diff_src_desc()}},
      desc.scratchpad_desc());
}

}  // namespace trireme::ops::cpu
