// Ops of bf16 tensors on CPUs without instructions that multiply bf16. oneDNN 2.6 emulates these,
// which takes four times as long as multiplying f32 (Cascade Lake, matrices and convolutions). So
// the tensors are converted.
#pragma once

#include <vector>

#include "ops/cpu/plans.h"
#include "ops/op_info.h"

namespace trireme::ops::cpu {

// Returns whether the engine computes products in f32 if they have such tensors, see CpuOptions.
bool runs_in_f32(const Engine& engine, Specs specs);

// Returns the specs with f32 in place of bf16.
std::vector<TensorSpec> with_f32(Specs specs);

// Returns a plan with the dtypes of `given` that runs `inner`, the plan of the op for
// with_f32(given), on copies in scratch memory. Must be encoded on a stream that runs inline.
Plan convert_around(const OpInfo& info, Plan inner, const EnginePtr& engine, Specs given);

template <class Op>
Plan plan_in_f32(const Op& op, const EnginePtr& engine, Specs given) {
  return convert_around(Op::kInfo, plan(op, engine, with_f32(given)), engine, given);
}

}  // namespace trireme::ops::cpu
