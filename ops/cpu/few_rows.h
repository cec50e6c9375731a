// Products of a few rows with a matrix of bf16 weights, as in `trireme generate`, on CPUs without
// instructions to multiply bf16. One row takes about as long as reading the weight; oneDNN 2.6
// takes 1.4 times as long for one row, 1.9 for two and 1.3 for seven (Cascade Lake, weight of
// [50257, 768]).
#pragma once

#include <cstdint>

#include "ops/cpu/simd.h"

namespace trireme::ops::cpu {

struct FewRows {
  int64_t rows, inputs, outputs;
};

// y [rows, outputs] = x [rows, inputs] * weight^T + bias, with weight [outputs, inputs], all of
// them row-major. Sums in f32. `bias` may be null. Uses all threads.
void multiply_few_rows(const FewRows& sizes, const BFloat16* x, const BFloat16* weight,
                       const BFloat16* bias, BFloat16* y);

}  // namespace trireme::ops::cpu
