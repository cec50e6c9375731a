// Embedding of tokens: [T] -> [T, units].
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

constexpr int64_t kMaxSegments = 1 << 20;
constexpr int64_t kMaxPositions = 1 << 24;

class Embedding final : public Layer {
 public:
  explicit Embedding(const EmbeddingConfig& config) : config_(config) {}
  std::string_view kind() const override { return "embedding"; }
  // A part of a sequence does not have the tokens from which segments are counted.
  bool is_causal() const override { return !config_.has_segment_end(); }
  bool skips_padding() const override { return true; }
  bool reads_tokens() const override { return true; }
  std::vector<TokenField> token_fields() const override {
    return {{"embedding.segment_end",
             config_.has_segment_end() ? std::optional(config_.segment_end()) : std::nullopt}};
  }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 1, "[T]");
    if (config_.units() < 1) throw Error("embedding.units: must be at least 1");
    if (config_.vocab_size() < 1) throw Error("embedding.vocab_size: must be at least 1");
    const int64_t length = inputs[0][0], units = config_.units();
    if (config_.has_max_length() && config_.positions() != EmbeddingConfig::LEARNED) {
      throw Error("embedding.max_length: requires positions: LEARNED");
    }
    Signature signature{.output = {length, units}, .parameters = {}, .running_stats = {}};
    signature.parameters.push_back({.name = "weight",
                                    .shape = {config_.vocab_size(), units},
                                    .init = table_initializer(config_.weight_init())});
    switch (config_.positions()) {
      case EmbeddingConfig::NONE:
        break;
      case EmbeddingConfig::LEARNED:
        signature.parameters.push_back({.name = "position",
                                        .shape = {position_rows(length), units},
                                        .init = table_initializer(config_.position_init()),
                                        .by_position = true});
        break;
      case EmbeddingConfig::SINUSOIDAL:
        signature.parameters.push_back({.name = "position",
                                        .shape = {length, units},
                                        .init = {Initializer::Kind::kSinusoidal, 0, 0},
                                        .decays = false,
                                        .frozen = true,
                                        .by_position = true});
        break;
    }
    declare_segments(signature);
    return signature;
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value(emit.output_shape(), Layout::row_major());
    emit.emit(ops::EmbeddingForward{emit.sequence_length()},
              {tokens(emit), emit.parameter(0), has_positions() ? emit.parameter(1) : kNoValue,
               emit.starts(), emit.rows(y)});
    if (has_segments()) add_segments(emit, y);
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    // Tied weights: the gradient of another layer is in the array already.
    const ValueId sum = emit.gradient_sum(0);
    const bool learned = config_.positions() == EmbeddingConfig::LEARNED;
    emit.emit(ops::EmbeddingBackward{emit.sequence_length()},
              {tokens(emit), emit.rows(dy), sum, sum == kNoValue ? emit.parameter_gradient(0) : sum,
               learned ? emit.parameter_gradient(1) : kNoValue});
    if (!has_segments()) return;
    emit.emit(ops::EmbeddingBackward{}, {emit.saved(0), emit.rows(dy), kNoValue,
                                         emit.parameter_gradient(segment_parameter()), kNoValue});
  }

 private:
  // Returns the rows of the table of learned positions.
  int64_t position_rows(int64_t length) const {
    if (!config_.has_max_length()) return length;
    if (config_.max_length() < length || config_.max_length() > kMaxPositions) {
      throw Error(
          fmt::format("embedding.max_length: must be in [{}, {}], from the length of the "
                      "samples, got {}",
                      length, kMaxPositions, config_.max_length()));
    }
    return config_.max_length();
  }
  void declare_segments(Signature& signature) const {
    if (config_.segments() < 0 || config_.segments() > kMaxSegments) {
      throw Error(fmt::format("embedding.segments: must be in [0, {}], got {}", kMaxSegments,
                              config_.segments()));
    }
    if (config_.has_segment_end() && !has_segments()) {
      throw Error("embedding.segment_end: requires embedding.segments");
    }
    if (!has_segments()) return;
    signature.parameters.push_back({.name = "segment",
                                    .shape = {config_.segments(), config_.units()},
                                    .init = table_initializer(config_.segment_init())});
  }
  // Adds the vectors of the segments to y, and saves the segments of all rows.
  void add_segments(Emitter& emit, ValueId y) const {
    const ValueId ids =
        emit.new_value(DType::kI32, emit.spec(emit.input()).shape, Layout::row_major());
    emit.emit(ops::SegmentIds{config_.has_segment_end() ? config_.segment_end() : -1,
                              static_cast<int32_t>(config_.segments())},
              {emit.input(), ids});
    const ValueId rows = emit.view(ids, {emit.spec(ids).shape.elements()});
    const ValueId added = emit.new_value_like(y);
    emit.emit(ops::EmbeddingForward{},
              {rows, emit.parameter(segment_parameter()), kNoValue, kNoValue, emit.rows(added)});
    emit.emit(ops::Add{}, {y, added, y});
    emit.save_for_backward(rows);
  }

  // The default is that of PyTorch.
  static Initializer table_initializer(const InitializerConfig& config) {
    if (config.kind_case() == InitializerConfig::KIND_NOT_SET) {
      return {Initializer::Kind::kNormal, 0, 1};
    }
    return initializer(config, 1, 1);
  }
  bool has_segments() const { return config_.segments() > 0; }
  int segment_parameter() const { return has_positions() ? 2 : 1; }
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
