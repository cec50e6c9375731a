#include "model/zoo/transformer.h"

namespace trireme::model {

void require_tokens(const std::string& name, const ModelInput& input) {
  if (input.input.dtype == DType::kI32) return;
  throw ConfigError("model.zoo.name",
                    fmt::format("{} needs tokens (data.text, data.tokens), got {}", name,
                                input.input.to_string()));
}

void require_between(const char* field, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return;
  throw ConfigError(field, fmt::format("must be in [1, {}], got {}", max, value));
}

TransformerSize size_of(TransformerSize size, const ZooConfig& options) {
  if (options.has_blocks()) size.blocks = options.blocks();
  if (options.has_width()) size.width = options.width();
  if (options.has_heads()) size.heads = size.kv_heads = options.heads();
  if (options.has_kv_heads()) size.kv_heads = options.kv_heads();
  require_between("model.zoo.blocks", size.blocks, 1000);
  require_between("model.zoo.width", size.width, kMaxFeatures);
  require_between("model.zoo.heads", size.heads, kMaxFeatures);
  require_between("model.zoo.kv_heads", size.kv_heads, size.heads);
  if (size.width % size.heads != 0) {
    throw ConfigError(
        options.has_heads() ? "model.zoo.heads" : "model.zoo.width",
        fmt::format("the width {} is not a multiple of the {} heads", size.width, size.heads));
  }
  if (size.heads % size.kv_heads != 0) {
    throw ConfigError("model.zoo.kv_heads",
                      fmt::format("must divide the {} heads, got {}", size.heads, size.kv_heads));
  }
  return size;
}

void set_normal(InitializerConfig& init, float stddev) { init.mutable_normal()->set_std(stddev); }

EmbeddingConfig& TransformerBuilder::embedding(const std::string& name, int64_t width) {
  EmbeddingConfig& config = *net_.layer(name).mutable_embedding();
  config.set_units(width);
  set_normal(*config.mutable_weight_init(), kInitialStddev);
  return config;
}

EmbeddingConfig& TransformerBuilder::embedding_with_positions(const std::string& name,
                                                              int64_t width) {
  EmbeddingConfig& config = embedding(name, width);
  config.set_positions(EmbeddingConfig::LEARNED);
  set_normal(*config.mutable_position_init(), kInitialStddev);
  if (options_.has_max_length()) config.set_max_length(options_.max_length());
  return config;
}

DenseConfig& TransformerBuilder::dense(const std::string& name, int64_t units, bool bias,
                                       float stddev) {
  DenseConfig& config = *net_.layer(name).mutable_dense();
  config.set_units(units);
  config.set_bias(bias);
  set_normal(*config.mutable_weight_init(), stddev);
  if (bias) config.mutable_bias_init()->mutable_constant();
  return config;
}

void TransformerBuilder::residual(const std::string& name, int64_t units, bool bias,
                                  const std::string& branch, const std::string& from) {
  dense(name, units, bias, branch_stddev_);
  dropout(branch + ".dropout");
  const std::string last = net_.last();
  net_.layer(branch + ".residual", {from, last}).mutable_add();
}

}  // namespace trireme::model
