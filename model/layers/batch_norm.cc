// Batch normalization per channel of any shape [C, ...], fused with a residual sum and a ReLU. If
// it is frozen, it uses its running statistics and does not update them.
#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class BatchNorm final : public Layer {
 public:
  explicit BatchNorm(const BatchNormConfig& config) : config_(config) {}
  std::string_view kind() const override { return "batch_norm"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    if (!(config_.epsilon() > 0)) throw Error("batch_norm.epsilon: must be positive");
    if (!(config_.momentum() >= 0 && config_.momentum() <= 1)) {
      throw Error("batch_norm.momentum: must be between 0 and 1");
    }
    const Shape channels{inputs[0][0]};
    Initializer scale{Initializer::Kind::kConstant, 1, 0};
    if (config_.has_weight_init()) {
      scale = initializer(config_.weight_init(), channels[0], channels[0]);
    }
    Signature signature{
        .output = inputs[0],
        .parameters = {},
        .running_stats = {{.name = "running_mean", .shape = channels, .initial = 0},
                          {.name = "running_var", .shape = channels, .initial = 1}}};
    declare_scale_and_shift(signature, channels, scale);
    return signature;
  }

  bool fuse(const Layer& next) override {
    if (relu_) return false;
    if (next.is_sum() && !residual_) return residual_ = true;
    if (next.as_activation() == ops::Activation::kRelu) return relu_ = true;
    return false;
  }

  std::optional<ChannelScale> as_channel_scale() const override {
    if (residual_) return std::nullopt;
    return ChannelScale{config_.epsilon(), relu_ ? ops::Activation::kRelu : ops::Activation::kNone};
  }

  Statistics statistics() const override {
    return config_.sync() ? Statistics::kOfAllRanks : Statistics::kOfRank;
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId x = emit.input();
    const ValueId residual = residual_ ? emit.input(1) : kNoValue;
    const ValueId y = emit.new_value_like(x);
    if (!emit.training() || !emit.trained()) {
      emit.emit(ops::BatchNormInference{.epsilon = config_.epsilon(), .relu = relu_},
                {x, residual, emit.parameter(0), emit.parameter(1), emit.running_stat(0),
                 emit.running_stat(1), y});
      return y;
    }
    const int64_t channels = emit.spec(x).shape[1];
    const ValueId saved =
        emit.new_value(emit.gradient_dtype(), {2 * channels}, Layout::row_major());
    ValueId sums = kNoValue;
    if (across_ranks(emit)) {
      sums = emit.new_value(DType::kF64, {2 * channels + 1}, Layout::row_major());
      emit.emit(ops::BatchNormStatistics{}, {x, emit.state(), sums});
      emit.all_reduce(sums);
    }
    emit.emit(
        ops::BatchNormForward{
            .epsilon = config_.epsilon(), .momentum = config_.momentum(), .relu = relu_},
        {x, residual, emit.parameter(0), emit.parameter(1), sums, emit.state(),
         emit.running_stat(0), emit.running_stat(1), y, saved});
    emit.save_for_backward(saved);
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.trained()) return backward_frozen(emit, dy);
    const ValueId x = emit.input();
    const ValueId y = relu_ ? emit.output() : kNoValue;
    const ValueId saved = emit.saved(0);
    ValueId sums = kNoValue;
    if (across_ranks(emit)) {
      const int64_t channels = emit.spec(x).shape[1];
      sums = emit.new_value(DType::kF64, {2 * channels + 1}, Layout::row_major());
      emit.emit(ops::BatchNormBackwardSums{relu_}, {x, y, dy, saved, emit.state(), sums});
      emit.all_reduce(sums);
    }
    const ValueId dx = emit.new_value_like(x);
    // Without a ReLU the gradient of the residual is dy.
    const ValueId dresidual = !residual_ ? kNoValue : relu_ ? emit.new_value_like(dy) : dy;
    emit.emit(
        ops::BatchNormBackward{relu_},
        {x, y, dy, emit.parameter(0), saved, sums, emit.state(), dx, relu_ ? dresidual : kNoValue,
         emit.parameter_gradient(0), emit.parameter_gradient(1)});
    emit.accumulate_gradient(0, dx);
    if (residual_) emit.accumulate_gradient(1, dresidual);
  }

 private:
  bool across_ranks(const Emitter& emit) const {
    return config_.sync() && emit.collective() && emit.collective()->size() > 1;
  }

  // dx is dy times the scale of each channel.
  void backward_frozen(Emitter& emit, ValueId dy) const {
    const ValueId g = backward_through_activation(
        emit, relu_ ? ops::Activation::kRelu : ops::Activation::kNone, emit.output(), dy);
    if (residual_) emit.accumulate_gradient(1, g);
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(emit.input());
    emit.emit(ops::BatchNormInference{.epsilon = config_.epsilon()},
              {g, kNoValue, emit.parameter(0), kNoValue, kNoValue, emit.running_stat(1), dx});
    emit.accumulate_gradient(0, dx);
  }

  BatchNormConfig config_;
  bool residual_ = false;
  bool relu_ = false;
};

}  // namespace

std::unique_ptr<Layer> make_batch_norm(const LayerConfig& config) {
  return std::make_unique<BatchNorm>(config.batch_norm());
}

}  // namespace trireme::model
