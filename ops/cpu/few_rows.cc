#include "ops/cpu/few_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/parallel.h"

namespace trireme::ops::cpu {
namespace {

// Numbers that are read together, as pairs in 32 bits each. Taking 16 pairs apart takes two
// operations; GCC 12 converts 16 consecutive numbers (load in simd.h) in five.
constexpr int kRead = 2 * kLanes;
TRIREME_INLINE inline U16 load_pairs(const BFloat16* from) {
  U16 pairs;
  std::memcpy(&pairs, from, sizeof(pairs));
  return pairs;
}
TRIREME_INLINE inline U16 load_pairs(const BFloat16* from, int64_t count) {
  BFloat16 padded[kRead] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return load_pairs(padded);
}
TRIREME_INLINE inline F16 first_of(U16 pairs) { return __builtin_bit_cast(F16, pairs << 16); }
TRIREME_INLINE inline F16 second_of(U16 pairs) {
  return __builtin_bit_cast(F16, pairs & 0xFFFF0000U);
}

TRIREME_INLINE inline float sum_of(F16 v) {
  using F8 = float __attribute__((vector_size(32)));
  using F4 = float __attribute__((vector_size(16)));
  const F8 eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                   __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const F4 four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                  __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

// Outputs that are computed together, each of which reads its own row of the weight.
constexpr int kTogether = 4;
using Outputs = std::array<float, kTogether>;

// The sum of products of a row of x with each of these rows of the weight.
struct Sums {
  F16 first[kTogether] = {}, second[kTogether] = {};

  TRIREME_INLINE void add(U16 x, int output, U16 weight) {
    first[output] += first_of(x) * first_of(weight);
    second[output] += second_of(x) * second_of(weight);
  }
};

// Computes kTogether outputs of all rows.
TRIREME_VECTORIZED void multiply(const FewRows& sizes, const BFloat16* x,
                                 const std::array<const BFloat16*, kTogether>& weight,
                                 const Outputs& bias, BFloat16* const (&y)[kTogether]) {
  const int64_t whole = sizes.inputs / kRead * kRead, rest = sizes.inputs - whole;
  for (int64_t r = 0; r < sizes.rows; ++r, x += sizes.inputs) {
    Sums sums;
    for (int64_t i = 0; i < whole; i += kRead) {
      const U16 pairs = load_pairs(x + i);
      for (int k = 0; k < kTogether; ++k) {
        __builtin_prefetch(weight[k] + i + kTogether * sizes.inputs);
        sums.add(pairs, k, load_pairs(weight[k] + i));
      }
    }
    if (rest > 0) {
      const U16 pairs = load_pairs(x + whole, rest);
      for (int k = 0; k < kTogether; ++k) {
        sums.add(pairs, k, load_pairs(weight[k] + whole, rest));
      }
    }
    for (int k = 0; k < kTogether; ++k) {
      y[k][r * sizes.outputs] = {to_bf16(sum_of(sums.first[k] + sums.second[k]) + bias[k])};
    }
  }
}

}  // namespace

void multiply_few_rows(const FewRows& sizes, const BFloat16* x, const BFloat16* weight,
                       const BFloat16* bias, BFloat16* y) {
  const int64_t blocks = (sizes.outputs + kTogether - 1) / kTogether;
  parallel_for(blocks, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      std::array<const BFloat16*, kTogether> rows;
      BFloat16* to[kTogether];
      Outputs biases{};
      for (int k = 0; k < kTogether; ++k) {
        // The last block repeats the last output.
        const int64_t output = std::min(kTogether * block + k, sizes.outputs - 1);
        rows[k] = weight + output * sizes.inputs;
        to[k] = y + output;
        if (bias) biases[k] = to_float(bias[output]);
      }
      multiply(sizes, x, rows, biases, to);
    }
  });
}

}  // namespace trireme::ops::cpu
