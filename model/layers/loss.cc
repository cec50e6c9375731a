// Losses. A loss is the last layer of a network and has no output.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

// Base of all losses: one op writes the metrics and, in training, the gradient of its input.
template <class LossOp>
class Loss : public Layer {
 public:
  ValueId forward(Emitter& emit) const override {
    const ValueId x = emit.row_major(emit.input());
    const ValueId dx = emit.training() ? emit.new_value_like(x) : kNoValue;
    emit.emit(op(emit), {emit.rows(x), emit.target_rows(), emit.state(),
                         dx == kNoValue ? dx : emit.rows(dx), emit.metrics()});
    emit.save_for_backward(dx);
    return kNoValue;
  }

  void backward(Emitter& emit, ValueId) const override {
    emit.accumulate_gradient(0, emit.converted(emit.saved(0), emit.spec(emit.input())));
  }

 protected:
  virtual LossOp op(const Emitter& emit) const = 0;
};

class SoftmaxCrossEntropyLayer final : public Loss<ops::SoftmaxCrossEntropy> {
 public:
  explicit SoftmaxCrossEntropyLayer(const SoftmaxCrossEntropyConfig& config)
      : smoothing_(config.label_smoothing()),
        weights_(config.class_weights().begin(), config.class_weights().end()),
        ignore_index_(config.ignore_index()) {}
  std::string_view kind() const override { return "softmax_cross_entropy"; }
  std::optional<ops::SoftmaxCrossEntropy> as_cross_entropy(const Emitter& emit) const override {
    return op(emit);
  }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    const Shape& logits = inputs[0];
    if (logits.rank() != 1 && logits.rank() != 2) {
      throw Error(fmt::format(
          "requires an input of shape [classes], or [T, classes] for a sequence, got {}",
          logits.to_string()));
    }
    if (!(smoothing_ >= 0 && smoothing_ < 1)) {
      throw Error("softmax_cross_entropy.label_smoothing: must be at least 0 and below 1");
    }
    if (!weights_.empty()) check_weights(logits[logits.rank() - 1]);
    return {};
  }

 protected:
  ops::SoftmaxCrossEntropy op(const Emitter& emit) const override {
    const Shape& labels = emit.spec(emit.target()).shape;
    const bool soft = emit.spec(emit.target()).dtype != DType::kI32;
    return {.label_smoothing = smoothing_,
            .class_weights = weights_,
            .labels_per_sample = soft ? 1 : labels.elements() / emit.batch(),
            .ignore_index = ignore_index_};
  }

 private:
  void check_weights(int64_t classes) const {
    const std::string field = "softmax_cross_entropy.class_weights";
    if (std::ssize(weights_) != classes) {
      throw Error(fmt::format("{}: has {} numbers, but there are {} classes", field,
                              weights_.size(), classes));
    }
    for (size_t c = 0; c < weights_.size(); ++c) {
      if (weights_[c] >= 0 && std::isfinite(weights_[c])) continue;
      throw Error(fmt::format("{}: the weight {} of class {} is negative or not finite", field,
                              weights_[c], c));
    }
    const float largest = std::ranges::max(weights_);
    if (largest == 0) throw Error(field + ": all are 0, so nothing would be learned");
    if (largest < kSmallestWeight) {
      throw Error(
          fmt::format("{}: the largest is {}, with which gradients become too small for "
                      "FP32; multiply all of them by one number, which changes nothing else",
                      field, largest));
    }
  }

  // Gradients are multiplied by the weights long before they are divided by the sum of them.
  static constexpr float kSmallestWeight = 1e-12F;

  float smoothing_;
  std::vector<float> weights_;  // by class; empty if all are 1
  int32_t ignore_index_;
};

class MeanSquaredErrorLayer final : public Loss<ops::MeanSquaredError> {
 public:
  std::string_view kind() const override { return "mean_squared_error"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 1, "[F]");
    return {};
  }

 protected:
  ops::MeanSquaredError op(const Emitter&) const override { return {}; }
};

}  // namespace

std::unique_ptr<Layer> make_softmax_cross_entropy(const LayerConfig& config) {
  return std::make_unique<SoftmaxCrossEntropyLayer>(config.softmax_cross_entropy());
}
std::unique_ptr<Layer> make_mean_squared_error(const LayerConfig&) {
  return std::make_unique<MeanSquaredErrorLayer>();
}

}  // namespace trireme::model
