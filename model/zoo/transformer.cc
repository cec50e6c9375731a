// Decoders for language modeling: GPT-2 (Radford et al., 2019) and Llama (Touvron et al.,
// arXiv:2302.13971).
#include "model/zoo/transformer.h"

#include <fmt/format.h>

#include <cmath>

#include "core/alignment.h"
#include "model/zoo/zoo.h"

namespace trireme::model {
namespace {

constexpr float kDecoderEpsilon = 1e-5F;

// Returns the features between the dense layers of a SwiGLU MLP, see ZooConfig::mlp_width.
int64_t mlp_width_of(const ZooConfig& options, int64_t width) {
  if (!options.has_mlp_width()) return round_up(8 * width / 3, 64);
  require_between("model.zoo.mlp_width", options.mlp_width(), kMaxFeatures);
  return options.mlp_width();
}

// Returns the standard deviation of the last dense layers of residual branches, as in GPT-2.
float branch_stddev(int64_t blocks) {
  return kInitialStddev / std::sqrt(2 * static_cast<float>(blocks));
}

}  // namespace

NetworkConfig Gpt2::operator()(const std::string& name, const ZooConfig& options,
                               const ModelInput& input) const {
  require_tokens(name, input);
  const TransformerSize chosen = size_of(size, options);
  const int64_t blocks = chosen.blocks, width = chosen.width;
  TransformerBuilder decoder(name, options, branch_stddev(blocks));
  NetworkBuilder& net = decoder.net();
  decoder.embedding_with_positions("wte", width).set_vocab_size(options.classes());
  decoder.dropout("drop");
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("h.{}.", i);
    const std::string before = net.last();
    decoder.layer_norm(block + "ln_1", kDecoderEpsilon);
    decoder.dense(block + "attn.c_attn", 3 * width, true);
    AttentionConfig& attention = *net.layer(block + "attn").mutable_attention();
    attention.set_heads(chosen.heads);
    attention.set_causal(true);
    if (options.has_document_end()) attention.set_document_end(options.document_end());
    decoder.residual(block + "attn.c_proj", width, true, block + "attn", before);
    const std::string between = net.last();
    decoder.layer_norm(block + "ln_2", kDecoderEpsilon);
    decoder.dense(block + "mlp.c_fc", 4 * width, true);
    net.layer(block + "mlp.act").mutable_gelu_tanh();
    decoder.residual(block + "mlp.c_proj", width, true, block + "mlp", between);
  }
  decoder.layer_norm("ln_f", kDecoderEpsilon);
  DenseConfig& head = *net.layer("lm_head").mutable_dense();
  head.set_units(options.classes());
  head.set_bias(false);
  head.set_tied_to("wte");
  return net.finish();
}

NetworkConfig Llama::operator()(const std::string& name, const ZooConfig& options,
                                const ModelInput& input) const {
  require_tokens(name, input);
  const auto [blocks, width, heads, kv_heads] = size_of(size, options);
  TransformerBuilder decoder(name, options, branch_stddev(blocks));
  NetworkBuilder& net = decoder.net();
  decoder.embedding("embed_tokens", width).set_vocab_size(options.classes());
  const int64_t head_dim = width / heads;
  const int64_t mlp_width = mlp_width_of(options, width);
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("layers.{}.", i);
    const std::string before = net.last();
    decoder.rms_norm(block + "input_layernorm", kDecoderEpsilon);
    decoder.dense(block + "self_attn.qkv_proj", (heads + 2 * kv_heads) * head_dim, false);
    AttentionConfig& attention = *net.layer(block + "self_attn").mutable_attention();
    attention.set_heads(heads);
    attention.set_kv_heads(kv_heads);
    attention.set_causal(true);
    RotaryConfig& rotary = *attention.mutable_rotary();
    if (options.has_rotary_base()) rotary.set_base(options.rotary_base());
    if (options.has_document_end()) attention.set_document_end(options.document_end());
    decoder.residual(block + "self_attn.o_proj", width, false, block + "self_attn", before);
    const std::string between = net.last();
    decoder.rms_norm(block + "post_attention_layernorm", kDecoderEpsilon);
    decoder.dense(block + "mlp.gate_up_proj", 2 * mlp_width, false);
    net.layer(block + "mlp.act").mutable_swiglu();
    decoder.residual(block + "mlp.down_proj", width, false, block + "mlp", between);
  }
  decoder.rms_norm("norm", kDecoderEpsilon);
  decoder.dense("lm_head", options.classes(), false);
  return net.finish();
}

}  // namespace trireme::model
