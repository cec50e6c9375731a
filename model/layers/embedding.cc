// Embedding of tokens: [T] -> [T, units].
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class Embedding final : public Layer {
 public:
  explicit Embedding(const EmbeddingConfig& config) : config_(config) {}
  std::string_view kind() const override { return "embedding"; }
  bool is_causal() const override { return true; }
  bool reads_tokens() const override { return true; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 1, "[T]");
    if (config_.units() < 1) throw Error("embedding.units: must be at least 1");
    if (config_.vocab_size() < 1) throw Error("embedding.vocab_size: must be at least 1");
    const int64_t length = inputs[0][0], units = config_.units();
    Signature signature{.output = {length, units}, .parameters = {}, .running_stats = {}};
    signature.parameters.push_back({.name = "weight",
                                    .shape = {config_.vocab_size(), units},
                                    .init = table_initializer(config_.weight_init())});
    switch (config_.positions()) {
      case EmbeddingConfig::NONE:
        break;
      case EmbeddingConfig::LEARNED:
        signature.parameters.push_back({.name = "position",
                                        .shape = {length, units},
                                        .init = table_initializer(config_.position_init())});
        break;
      case EmbeddingConfig::SINUSOIDAL:
        signature.parameters.push_back({.name = "position",
                                        .shape = {length, units},
                                        .init = {Initializer::Kind::kSinusoidal, 0, 0},
                                        .decays = false,
                                        .frozen = true});
        break;
    }
    return signature;
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value(emit.output_shape(), Layout::row_major());
    emit.emit(ops::EmbeddingForward{},
              {tokens(emit), emit.parameter(0), has_positions() ? emit.parameter(1) : kNoValue,
               emit.starts(), emit.rows(y)});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    // Tied weights: the gradient of another layer is in the array already.
    const ValueId sum = emit.gradient_sum(0);
    const bool learned = config_.positions() == EmbeddingConfig::LEARNED;
    emit.emit(ops::EmbeddingBackward{},
              {tokens(emit), emit.rows(dy), sum, sum == kNoValue ? emit.parameter_gradient(0) : sum,
               learned ? emit.parameter_gradient(1) : kNoValue});
  }

 private:
  // The default is that of PyTorch.
  static Initializer table_initializer(const InitializerConfig& config) {
    if (config.kind_case() == InitializerConfig::KIND_NOT_SET) {
      return {Initializer::Kind::kNormal, 0, 1};
    }
    return initializer(config, 1, 1);
  }
  bool has_positions() const { return config_.positions() != EmbeddingConfig::NONE; }
  static ValueId tokens(Emitter& emit) {
    const ValueId x = emit.input();
    return emit.view(x, {emit.spec(x).shape.elements()});
  }

  EmbeddingConfig config_;
};

}  // namespace

std::unique_ptr<Layer> make_embedding(const LayerConfig& config) {
  return std::make_unique<Embedding>(config.embedding());
}

}  // namespace trireme::model
