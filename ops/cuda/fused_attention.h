// Description of attention for cuDNN.
#pragma once

#include <string>
#include <vector>

#include "core/dtype.h"
#include "ops/attention.h"

namespace trireme::ops::cuda {

enum class AttentionPass { kInference, kForward, kBackward };

// Attention of `samples` sequences without first keys. Arguments of its algorithms, which are those
// of the ops: qkv, lengths, y, saved, dy, dqkv. What is written for padding is undefined. Empty
// samples are computed like full ones, since the autotuner measures with lengths of 0.
struct FusedAttention {
  enum Arg { kQkv, kLengths, kY, kSaved, kDy, kDqkv, kArgs };

  AttentionPass pass = AttentionPass::kForward;
  AttentionShape shape = {};
  int64_t samples = 0, length = 0, dim = 0;
  DType dtype = DType::kBF16;  // of all tensors but `saved`, which is f32
  bool padded = false;         // whether there are lengths

  // In elements: a row of qkv and of y; where the first key and value of a row of qkv begin.
  int64_t row() const { return (shape.heads + 2 * shape.kv_heads) * dim; }
  int64_t y_row() const { return shape.heads * dim; }
  int64_t keys() const { return shape.heads * dim; }
  int64_t values() const { return (shape.heads + shape.kv_heads) * dim; }
};

// Returns a string that identifies the attention.
std::string key(const FusedAttention& attention);
// Returns the size of each argument in bytes.
std::vector<size_t> bytes(const FusedAttention& attention);

}  // namespace trireme::ops::cuda
