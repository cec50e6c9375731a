// Decoders for language modeling: GPT-2 (Radford et al., 2019) and Llama (Touvron et al.,
// arXiv:2302.13971).
#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "model/zoo/builder.h"
#include "model/zoo/zoo.h"

namespace trireme::model {
namespace {

constexpr float kInitialStddev = 0.02f;  // as in GPT-2

// Returns the size of the name with the options applied.
DecoderSize size_of(DecoderSize size, const ZooConfig& options) {
  if (options.has_blocks()) size.blocks = options.blocks();
  if (options.has_width()) size.width = options.width();
  if (options.has_heads()) size.heads = size.kv_heads = options.heads();
  const auto check = [](const char* field, int64_t value, int64_t max) {
    if (value >= 1 && value <= max) return;
    throw ConfigError(field, fmt::format("must be in [1, {}], got {}", max, value));
  };
  check("model.zoo.blocks", size.blocks, 1000);
  check("model.zoo.width", size.width, 1 << 20);
  check("model.zoo.heads", size.heads, 1 << 20);
  if (size.width % size.heads != 0) {
    throw ConfigError("model.zoo.width", fmt::format("must be a multiple of the {} heads, got {}",
                                                     size.heads, size.width));
  }
  return size;
}

// Returns the features between the dense layers of a SwiGLU MLP: 8/3 of the width, as in Llama,
// rounded up to a multiple of 64.
int64_t swiglu_features(int64_t width) { return (8 * width / 3 + 63) / 64 * 64; }

void set_normal(InitializerConfig& init, float stddev) { init.mutable_normal()->set_std(stddev); }

// Adds the layers of pre-norm residual blocks.
class DecoderBuilder {
 public:
  DecoderBuilder(const std::string& name, const ZooConfig& options, int64_t blocks)
      : net_(name, options),
        dropout_(options.dropout()),
        residual_stddev_(kInitialStddev / std::sqrt(2 * static_cast<float>(blocks))) {}

  EmbeddingConfig& embedding(const std::string& name, int64_t width) {
    EmbeddingConfig& config = *net_.layer(name).mutable_embedding();
    config.set_units(width);
    set_normal(*config.mutable_weight_init(), kInitialStddev);
    return config;
  }
  void dense(const std::string& name, int64_t units, bool bias, float stddev = kInitialStddev) {
    DenseConfig& config = *net_.layer(name).mutable_dense();
    config.set_units(units);
    config.set_bias(bias);
    set_normal(*config.mutable_weight_init(), stddev);
    if (bias) config.mutable_bias_init()->mutable_constant();
  }
  // The last layer of a residual branch, followed by dropout and the sum with what the branch reads.
  void residual(const std::string& name, int64_t units, bool bias, const std::string& branch,
                const std::string& from) {
    dense(name, units, bias, residual_stddev_);
    dropout(branch + ".dropout");
    const std::string last = net_.last();
    net_.layer(branch + ".residual", {from, last}).mutable_add();
  }
  void dropout(const std::string& name) {
    if (dropout_ > 0) net_.dropout(name, dropout_);
  }
  NetworkBuilder& net() { return net_; }

 private:
  NetworkBuilder net_;
  float dropout_;
  float residual_stddev_;
};

}  // namespace

void require_tokens(const std::string& name, const ModelInput& input) {
  if (input.input.dtype == DType::kI32) return;
  throw ConfigError("model.zoo.name",
                    fmt::format("{} needs tokens (data.text, data.tokens), got {}", name,
                                input.input.to_string()));
}

NetworkConfig Gpt2::operator()(const std::string& name, const ZooConfig& options,
                               const ModelInput& input) const {
  require_tokens(name, input);
  const DecoderSize chosen = size_of(size, options);
  const int64_t blocks = chosen.blocks, width = chosen.width;
  DecoderBuilder decoder(name, options, blocks);
  NetworkBuilder& net = decoder.net();
  EmbeddingConfig& embedding = decoder.embedding("wte", width);
  embedding.set_vocab_size(options.classes());
  embedding.set_positions(EmbeddingConfig::LEARNED);
  set_normal(*embedding.mutable_position_init(), kInitialStddev);
  decoder.dropout("drop");
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("h.{}.", i);
    const std::string before = net.last();
    net.layer(block + "ln_1").mutable_layer_norm();
    decoder.dense(block + "attn.c_attn", 3 * width, true);
    AttentionConfig& attention = *net.layer(block + "attn").mutable_attention();
    attention.set_heads(chosen.heads);
    attention.set_causal(true);
    if (options.has_document_end()) attention.set_document_end(options.document_end());
    decoder.residual(block + "attn.c_proj", width, true, block + "attn", before);
    const std::string between = net.last();
    net.layer(block + "ln_2").mutable_layer_norm();
    decoder.dense(block + "mlp.c_fc", 4 * width, true);
    net.layer(block + "mlp.act").mutable_gelu_tanh();
    decoder.residual(block + "mlp.c_proj", width, true, block + "mlp", between);
  }
  net.layer("ln_f").mutable_layer_norm();
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
  DecoderBuilder decoder(name, options, blocks);
  NetworkBuilder& net = decoder.net();
  decoder.embedding("embed_tokens", width).set_vocab_size(options.classes());
  const int64_t head_dim = width / heads;
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("layers.{}.", i);
    const std::string before = net.last();
    net.layer(block + "input_layernorm").mutable_rms_norm();
    decoder.dense(block + "self_attn.qkv_proj", (heads + 2 * kv_heads) * head_dim, false);
    AttentionConfig& attention = *net.layer(block + "self_attn").mutable_attention();
    attention.set_heads(heads);
    attention.set_kv_heads(kv_heads);
    attention.set_causal(true);
    attention.mutable_rotary();
    if (options.has_document_end()) attention.set_document_end(options.document_end());
    decoder.residual(block + "self_attn.o_proj", width, false, block + "self_attn", before);
    const std::string between = net.last();
    net.layer(block + "post_attention_layernorm").mutable_rms_norm();
    decoder.dense(block + "mlp.gate_up_proj", 2 * swiglu_features(width), false);
    net.layer(block + "mlp.act").mutable_swiglu();
    decoder.residual(block + "mlp.down_proj", width, false, block + "mlp", between);
  }
  net.layer("norm").mutable_rms_norm();
  decoder.dense("lm_head", options.classes(), false);
  return net.finish();
}

}  // namespace trireme::model
