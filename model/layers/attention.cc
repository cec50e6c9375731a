// Multi-head attention over queries, keys and values that a dense layer has projected:
// [T, (heads + 2 * kv_heads) * D] -> [T, heads * D].
#include <fmt/format.h>

#include <cmath>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class Attention final : public Layer {
 public:
  explicit Attention(const AttentionConfig& config) : config_(config) {}
  std::string_view kind() const override { return "attention"; }
  bool is_causal() const override { return config_.causal(); }
  bool skips_padding() const override { return config_.causal() || config_.has_padding_token(); }
  std::vector<TokenField> token_fields() const override {
    return {{"attention.padding_token", padding_token()},
            {"attention.document_end", document_end()}};
  }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 2, "[T, (heads + 2 * kv_heads) * D]");
    if (config_.heads() < 1) throw Error("attention.heads: must be at least 1");
    if (kv_heads() < 1 || config_.heads() % kv_heads() != 0) {
      throw Error(fmt::format("attention.kv_heads: must divide the {} heads, got {}",
                              config_.heads(), kv_heads()));
    }
    if (document_end() && !config_.causal()) {
      throw Error("attention.document_end: requires attention.causal");
    }
    const int64_t width = inputs[0][1], all = config_.heads() + 2 * kv_heads();
    if (width % all != 0) {
      throw Error(
          fmt::format("requires queries, keys and values of {} heads in all, but the width "
                      "of {} is not a multiple of that",
                      all, inputs[0].to_string()));
    }
    const int64_t head_dim = width / all;
    if (config_.has_rotary()) {
      if (head_dim % 2 != 0) {
        throw Error(fmt::format("attention.rotary: requires an even head size, got {}", head_dim));
      }
      if (!(config_.rotary().base() > 0)) throw Error("attention.rotary.base: must be positive");
    }
    return {.output = {inputs[0][0], config_.heads() * head_dim},
            .parameters = {},
            .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId qkv = rotated(emit, emit.row_major(emit.input()), /*inverse=*/false);
    const ValueId y = emit.new_value(emit.output_shape(), Layout::row_major());
    if (emit.starts() != kNoValue) {
      const ValueId cache =
          emit.new_cache({emit.batch(), emit.sequence_length(), 2 * kv_heads() * head_dim(emit)});
      // Padding needs no mask here: it is at the end, where no earlier token attends to it.
      emit.emit(ops::CachedAttention{shape(emit)},
                {qkv, emit.starts(), first_keys(emit), cache, y});
      return y;
    }
    ValueId saved = kNoValue;
    if (emit.training()) {
      saved = emit.new_value(emit.gradient_dtype(),
                             {emit.batch(), config_.heads(), emit.output_shape()[1]},
                             Layout::row_major());
      emit.save_for_backward(qkv);
      emit.save_for_backward(saved);
    }
    emit.emit(ops::AttentionForward{shape(emit)}, {qkv, lengths(emit), first_keys(emit), y, saved});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.needs_gradient()) return;
    const ValueId qkv = emit.saved(0);
    const ValueId dqkv = emit.new_value_like(qkv);
    emit.emit(ops::AttentionBackward{shape(emit)},
              {qkv, lengths(emit), first_keys(emit), emit.output(), emit.saved(1),
               emit.row_major(dy), dqkv});
    const ValueId dx = rotated(emit, dqkv, /*inverse=*/true);
    emit.accumulate_gradient(0, emit.converted(dx, emit.spec(emit.input())));
  }

 private:
  int64_t kv_heads() const { return config_.has_kv_heads() ? config_.kv_heads() : config_.heads(); }
  int64_t head_dim(Emitter& emit) const { return emit.output_shape()[2] / config_.heads(); }

  std::optional<int32_t> padding_token() const {
    return config_.has_padding_token() ? std::optional(config_.padding_token()) : std::nullopt;
  }
  std::optional<int32_t> document_end() const {
    return config_.has_document_end() ? std::optional(config_.document_end()) : std::nullopt;
  }
  ValueId lengths(Emitter& emit) const {
    return padding_token() ? emit.sequence_lengths(*padding_token()) : kNoValue;
  }
  ValueId first_keys(Emitter& emit) const {
    return document_end() ? emit.document_starts(*document_end()) : kNoValue;
  }

  ops::AttentionShape shape(Emitter& emit) const {
    return {.heads = config_.heads(),
            .kv_heads = kv_heads(),
            .causal = config_.causal(),
            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim(emit))))};
  }

  // Returns `x` with rotated queries and keys; x itself without rotary positions.
  ValueId rotated(Emitter& emit, ValueId x, bool inverse) const {
    if (!config_.has_rotary()) return x;
    const ValueId y = emit.new_value_like(x);
    emit.emit(ops::Rotary{.length = emit.sequence_length(),
                          .heads = config_.heads() + kv_heads(),
                          .head_dim = head_dim(emit),
                          .base = config_.rotary().base(),
                          .inverse = inverse},
              {emit.rows(x), emit.starts(), emit.rows(y)});
    return y;
  }

  AttentionConfig config_;
};

}  // namespace

std::unique_ptr<Layer> make_attention(const LayerConfig& config) {
  return std::make_unique<Attention>(config.attention());
}

}  // namespace trireme::model
