// Encoders: the vision transformer (Dosovitskiy et al., arXiv:2010.11929) and BERT (Devlin et al.,
// arXiv:1810.04805).
#include <fmt/format.h>

#include "model/zoo/transformer.h"
#include "model/zoo/zoo.h"

namespace trireme::model {
namespace {

constexpr float kVitEpsilon = 1e-6F;    // as in timm
constexpr float kBertEpsilon = 1e-12F;  // as in transformers
constexpr int64_t kSegments = 2;
constexpr int64_t kDefaultPatch = 16;

bool averages(const ZooConfig& options) { return options.pooling() == ZooConfig::MEAN; }

// Returns the side of a patch. Throws ConfigError unless patches cover the samples, which must be
// images.
int64_t patch_of(const std::string& name, const ZooConfig& options, const ModelInput& input) {
  const Shape& image = input.input.shape;
  if (image.rank() != 3) {
    throw ConfigError("model.zoo.name", fmt::format("{} needs images [C, H, W], got {}", name,
                                                    input.input.to_string()));
  }
  const int64_t patch = options.has_patch() ? options.patch() : kDefaultPatch;
  if (patch < 1 || image[1] % patch != 0 || image[2] % patch != 0) {
    throw ConfigError("model.zoo.patch", fmt::format("{} does not divide the sides of the images, "
                                                     "{} x {}",
                                                     patch, image[1], image[2]));
  }
  return patch;
}

// Returns the size of the vocabulary of BERT.
int64_t vocabulary_of(const ZooConfig& options, const ModelInput& input) {
  if (!options.has_vocab_size()) return input.vocabulary();
  if (options.vocab_size() < input.vocabulary() || options.vocab_size() > 1 << 24) {
    throw ConfigError(
        "model.zoo.vocab_size",
        fmt::format("must be in [{}, {}], where {} is the vocabulary of the data, "
                    "got {}",
                    input.vocabulary(), 1 << 24, input.vocabulary(), options.vocab_size()));
  }
  return options.vocab_size();
}

void vit_block(TransformerBuilder& encoder, const std::string& block, const TransformerSize& size) {
  NetworkBuilder& net = encoder.net();
  const std::string before = net.last();
  encoder.layer_norm(block + "norm1", kVitEpsilon);
  encoder.dense(block + "attn.qkv", 3 * size.width, true);
  net.layer(block + "attn").mutable_attention()->set_heads(size.heads);
  encoder.residual(block + "attn.proj", size.width, true, block + "attn", before);
  const std::string between = net.last();
  encoder.layer_norm(block + "norm2", kVitEpsilon);
  encoder.dense(block + "mlp.fc1", 4 * size.width, true);
  net.layer(block + "mlp.act").mutable_gelu();
  encoder.residual(block + "mlp.fc2", size.width, true, block + "mlp", between);
}

void bert_block(TransformerBuilder& encoder, const std::string& block, const TransformerSize& size,
                const ZooConfig& options) {
  NetworkBuilder& net = encoder.net();
  const std::string before = net.last();
  encoder.dense(block + "attention.self.qkv", 3 * size.width, true);
  AttentionConfig& attention = *net.layer(block + "attention.self").mutable_attention();
  attention.set_heads(size.heads);
  if (options.has_padding_token()) attention.set_padding_token(options.padding_token());
  encoder.residual(block + "attention.output.dense", size.width, true, block + "attention.output",
                   before);
  encoder.layer_norm(block + "attention.output.LayerNorm", kBertEpsilon);
  const std::string between = net.last();
  encoder.dense(block + "intermediate.dense", 4 * size.width, true);
  net.layer(block + "intermediate.act").mutable_gelu();
  encoder.residual(block + "output.dense", size.width, true, block + "output", between);
  encoder.layer_norm(block + "output.LayerNorm", kBertEpsilon);
}

// The logits of a sample.
void bert_classifier(TransformerBuilder& encoder, const TransformerSize& size,
                     const ZooConfig& options) {
  NetworkBuilder& net = encoder.net();
  TokenPoolConfig& pool = *net.layer("pool").mutable_token_pool();
  if (averages(options)) {
    pool.set_mode(TokenPoolConfig::MEAN);
    if (options.has_padding_token()) pool.set_padding_token(options.padding_token());
  } else {
    encoder.dense("pooler.dense", size.width, true);
    net.layer("pooler.act").mutable_tanh();
  }
  encoder.dropout("dropout");
  encoder.dense("classifier", options.classes(), true);
}

// The logits of all tokens, by the embedding of the tokens (masked language modeling).
void bert_language_model(TransformerBuilder& encoder, const TransformerSize& size,
                         int64_t vocab_size) {
  NetworkBuilder& net = encoder.net();
  encoder.dense("cls.predictions.transform.dense", size.width, true);
  net.layer("cls.predictions.transform.act").mutable_gelu();
  encoder.layer_norm("cls.predictions.transform.LayerNorm", kBertEpsilon);
  encoder.dense("cls.predictions", vocab_size, true).set_tied_to("embeddings");
}

}  // namespace

NetworkConfig Vit::operator()(const std::string& name, const ZooConfig& options,
                              const ModelInput& input) const {
  const int64_t patch = patch_of(name, options, input);
  const TransformerSize chosen = size_of(size, options);
  TransformerBuilder encoder(name, options, kInitialStddev);
  NetworkBuilder& net = encoder.net();
  Conv2dConfig& patches = net.conv("patch_embed.proj", chosen.width, patch, patch);
  set_normal(*patches.mutable_weight_init(), kInitialStddev);
  patches.mutable_bias_init()->mutable_constant();
  net.layer("patch_embed").mutable_to_sequence();
  net.layer("embed").mutable_class_token();
  encoder.dropout("drop");
  for (int64_t i = 0; i < chosen.blocks; ++i) {
    vit_block(encoder, fmt::format("blocks.{}.", i), chosen);
  }
  encoder.layer_norm("norm", kVitEpsilon);
  TokenPoolConfig& pool = *net.layer("pool").mutable_token_pool();
  if (averages(options)) {
    pool.set_mode(TokenPoolConfig::MEAN);
    pool.set_skip(1);  // the class token
  }
  encoder.dense("head", options.classes(), true);
  return net.finish();
}

NetworkConfig Bert::operator()(const std::string& name, const ZooConfig& options,
                               const ModelInput& input) const {
  require_tokens(name, input);
  const TransformerSize chosen = size_of(size, options);
  const bool labels_tokens = input.target.shape.rank() == 1;
  if (labels_tokens && options.has_pooling()) {
    throw ConfigError("model.zoo.pooling",
                      "is for samples with one label; here each token has one");
  }
  const int64_t vocab_size = labels_tokens ? options.classes() : vocabulary_of(options, input);
  TransformerBuilder encoder(name, options, kInitialStddev);
  EmbeddingConfig& embedding = encoder.embedding_with_positions("embeddings", chosen.width);
  embedding.set_vocab_size(vocab_size);
  embedding.set_segments(kSegments);
  if (options.has_segment_end()) embedding.set_segment_end(options.segment_end());
  set_normal(*embedding.mutable_segment_init(), kInitialStddev);
  encoder.layer_norm("embeddings.LayerNorm", kBertEpsilon);
  encoder.dropout("embeddings.dropout");
  for (int64_t i = 0; i < chosen.blocks; ++i) {
    bert_block(encoder, fmt::format("encoder.layer.{}.", i), chosen, options);
  }
  if (labels_tokens) {
    bert_language_model(encoder, chosen, vocab_size);
  } else {
    bert_classifier(encoder, chosen, options);
  }
  return encoder.net().finish();
}

}  // namespace trireme::model
