#include "ops/cpu/activation.h"

#include "ops/choose_layouts.h"

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

Plan plan_activation(const EnginePtr& engine, Activation activation, std::vector<TensorSpec> specs,
                     int x, int y) {
  const auto desc = forward_desc(engine, activation, to_desc(specs[x]));
  return std::make_unique<PrimitivePlan>(
      engine, std::move(specs), dnnl::eltwise_forward(desc),
      std::vector<PrimitivePlan::Binding>{{DNNL_ARG_SRC, x, desc.src_desc()},
                                          {DNNL_ARG_DST, y, desc.dst_desc()}},
      desc.scratchpad_desc());
}

Plan plan_activation_gradient(const EnginePtr& engine, Activation activation,
                              std::vector<TensorSpec> specs, int saved, int dy, int dx) {
  const memory::desc x = to_desc(specs[saved]);
  const dnnl::eltwise_backward::primitive_desc desc(
      {to_dnnl(activation), to_desc(specs[dy]), x, alpha_of(activation), 0}, scratch_by_caller(),
      engine->engine, forward_desc(engine, activation, x));
  const int arg = derivative_uses_output(activation) ? DNNL_ARG_DST : DNNL_ARG_SRC;
  return std::make_unique<PrimitivePlan>(
      engine, std::move(specs), dnnl::eltwise_backward(desc),
      std::vector<PrimitivePlan::Binding>{{arg, saved, x},
                                          {DNNL_ARG_DIFF_DST, dy, desc.diff_dst_desc()},
                                          {DNNL_ARG_DIFF_SRC, dx, desc.diff_src_desc()}},
      desc.scratchpad_desc());
}

Plan plan(const ActivationForward& op, const EnginePtr& engine, Specs given) {
  using Op = ActivationForward;
  return plan_activation(engine, op.activation, in_one_layout(given), Op::kX, Op::kY);
}

Plan plan(const ActivationBackward& op, const EnginePtr& engine, Specs given) {
  using Op = ActivationBackward;
  return plan_activation_gradient(engine, op.activation, in_one_layout(given), Op::kSaved, Op::kDy,
                                  Op::kDx);
}

}  // namespace trireme::ops::cpu
