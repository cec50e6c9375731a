// Trireme's own kernels for attention.
#pragma once

#include <cstdint>

#include "ops/attention.h"
#include "ops/cuda/plans.h"

namespace trireme::ops::cuda {

// Return plans for every dtype and mask, and heads of up to 128 elements.
Plan plan_attention_kernels(const AttentionForward& op, Specs given);
Plan plan_attention_kernels(const AttentionBackward& op, Specs given);

// Writes the lengths of the samples to `valid`, and `length` for empty ones: libraries are not
// relied on to accept those, and what they compute for padding is undefined anyway.
void encode_valid_lengths(Stream& stream, const int32_t* lengths, int64_t samples, int64_t length,
                          int32_t* valid);

// Writes zeros to the rows of `to` [samples, heads, length, width] from the length of their sample
// on.
struct PaddedRows {
  DType dtype;
  int64_t samples, heads, length, width;
};
void clear_padding(Stream& stream, const PaddedRows& rows, const int32_t* lengths, void* to);

}  // namespace trireme::ops::cuda
