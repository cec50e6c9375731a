// One vector of features for a sequence, those of its first token or the mean over its tokens:
// [T, F] -> [F].
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class TokenPool final : public Layer {
 public:
  explicit TokenPool(const TokenPoolConfig& config) : config_(config) {}
  std::string_view kind() const override { return "token_pool"; }
  bool skips_padding() const override {
    return config_.mode() == TokenPoolConfig::FIRST || config_.has_padding_token();
  }
  std::vector<TokenField> token_fields() const override {
    return {{"token_pool.padding_token", padding_token()}};
  }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 2, "[T, F]");
    if (config_.mode() == TokenPoolConfig::FIRST &&
        (config_.has_skip() || config_.has_padding_token())) {
      throw Error("token_pool.skip and token_pool.padding_token: require mode: MEAN");
    }
    if (config_.skip() < 0 || config_.skip() >= inputs[0][0]) {
      throw Error(fmt::format("token_pool.skip: must be in [0, {}), the number of tokens, got {}",
                              inputs[0][0], config_.skip()));
    }
    return {.output = {inputs[0][1]}, .parameters = {}, .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value(emit.output_shape(), Layout::row_major());
    emit.emit(ops::PoolTokensForward{range()}, {emit.row_major(emit.input()), lengths(emit), y});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value(emit.spec(emit.input()).shape, Layout::row_major());
    emit.emit(ops::PoolTokensBackward{range()}, {emit.row_major(dy), lengths(emit), dx});
    emit.accumulate_gradient(0, emit.converted(dx, emit.spec(emit.input())));
  }

 private:
  ops::TokenRange range() const {
    if (config_.mode() == TokenPoolConfig::FIRST) return {.first = 0, .count = 1};
    return {.first = config_.skip(), .count = 0};
  }
  std::optional<int32_t> padding_token() const {
    return config_.has_padding_token() ? std::optional(config_.padding_token()) : std::nullopt;
  }
  ValueId lengths(Emitter& emit) const {
    return padding_token() ? emit.sequence_lengths(*padding_token()) : kNoValue;
  }

  TokenPoolConfig config_;
};

}  // namespace

std::unique_ptr<Layer> make_token_pool(const LayerConfig& config) {
  return std::make_unique<TokenPool>(config.token_pool());
}

}  // namespace trireme::model
