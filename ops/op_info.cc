// What is true of an operation whoever runs it.
#include <algorithm>
#include <type_traits>

#include "ops/backend.h"

namespace trireme {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

double elements(std::span<const TensorSpec> specs, int arg) {
  return static_cast<double>(specs[static_cast<size_t>(arg)].shape.elements());
}

// Two operations for each weight and each place (and image) it is used at.
double convolution_flops(std::span<const TensorSpec> specs, int weight, int y) {
  const Shape& w = specs[static_cast<size_t>(weight)].shape;
  return 2 * elements(specs, y) * static_cast<double>(w[1] * w[2] * w[3]);
}

double dense_flops(std::span<const TensorSpec> specs, int weight, int y) {
  return 2 * elements(specs, y) * static_cast<double>(specs[static_cast<size_t>(weight)].shape[1]);
}

using Pairs = std::vector<std::pair<int, int>>;

}  // namespace

std::string_view name_of(const Op& op) {
  // In the order of the variant.
  constexpr std::string_view kNames[] = {"conv2d_forward",
                                         "conv2d_backward_data",
                                         "conv2d_backward_weights",
                                         "dense_forward",
                                         "dense_backward_data",
                                         "dense_backward_weights",
                                         "activation_forward",
                                         "activation_backward",
                                         "batch_norm_statistics",
                                         "batch_norm_forward",
                                         "batch_norm_inference",
                                         "batch_norm_backward_sums",
                                         "batch_norm_backward",
                                         "layer_norm_forward",
                                         "layer_norm_backward",
                                         "max_pool_forward",
                                         "max_pool_backward",
                                         "average_pool_forward",
                                         "average_pool_backward",
                                         "dropout_forward",
                                         "dropout_backward",
                                         "add",
                                         "concat",
                                         "split",
                                         "reorder",
                                         "normalize_input",
                                         "softmax_cross_entropy",
                                         "mean_squared_error",
                                         "sum_of_squares",
                                         "sgd_update",
                                         "adam_update",
                                         "scale_loss",
                                         "adjust_loss_scale"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>);
  return kNames[op.index()];
}

double flops(const Op& op, std::span<const TensorSpec> specs) {
  return std::visit(
      Overloaded{
          [&](const Conv2dForward&) {
            return convolution_flops(specs, Conv2dForward::kWeight, Conv2dForward::kY);
          },
          [&](const Conv2dBackwardData&) {
            return convolution_flops(specs, Conv2dBackwardData::kWeight, Conv2dBackwardData::kDy);
          },
          [&](const Conv2dBackwardWeights&) {
            return convolution_flops(specs, Conv2dBackwardWeights::kDweight,
                                     Conv2dBackwardWeights::kDy);
          },
          [&](const DenseForward&) {
            return dense_flops(specs, DenseForward::kWeight, DenseForward::kY);
          },
          [&](const DenseBackwardData&) {
            return dense_flops(specs, DenseBackwardData::kWeight, DenseBackwardData::kDy);
          },
          [&](const DenseBackwardWeights&) {
            return dense_flops(specs, DenseBackwardWeights::kDweight, DenseBackwardWeights::kDy);
          },
          [](const auto&) { return 0.0; }},
      op);
}

std::vector<std::pair<int, int>> aliases(const Op& op) {
  return std::visit(
      Overloaded{[](const ActivationForward&) {
                   return Pairs{{ActivationForward::kY, ActivationForward::kX}};
                 },
                 [](const ActivationBackward&) {
                   return Pairs{{ActivationBackward::kDx, ActivationBackward::kDy}};
                 },
                 [](const BatchNormInference&) {
                   return Pairs{{BatchNormInference::kY, BatchNormInference::kX},
                                {BatchNormInference::kY, BatchNormInference::kResidual}};
                 },
                 [](const BatchNormBackward&) {
                   return Pairs{{BatchNormBackward::kDx, BatchNormBackward::kDy},
                                {BatchNormBackward::kDresidual, BatchNormBackward::kDy}};
                 },
                 [](const LayerNormBackward&) {
                   return Pairs{{LayerNormBackward::kDx, LayerNormBackward::kDy}};
                 },
                 [](const DropoutForward&) {
                   return Pairs{{DropoutForward::kY, DropoutForward::kX}};
                 },
                 [](const DropoutBackward&) {
                   return Pairs{{DropoutBackward::kDx, DropoutBackward::kDy}};
                 },
                 [](const Add&) {
                   return Pairs{{Add::kY, Add::kA}, {Add::kY, Add::kB}};
                 },
                 [](const SoftmaxCrossEntropy&) {
                   return Pairs{{SoftmaxCrossEntropy::kDlogits, SoftmaxCrossEntropy::kLogits}};
                 },
                 [](const MeanSquaredError&) {
                   return Pairs{{MeanSquaredError::kDprediction, MeanSquaredError::kPrediction}};
                 },
                 [](const auto&) { return Pairs{}; }},
      op);
}

bool is_output(const Op& op, int arg) {
  const auto among = [arg](std::initializer_list<int> outputs) {
    return std::find(outputs.begin(), outputs.end(), arg) != outputs.end();
  };
  return std::visit(
      Overloaded{
          [&](const Conv2dForward&) { return arg == Conv2dForward::kY; },
          [&](const Conv2dBackwardData&) { return arg == Conv2dBackwardData::kDx; },
          [&](const Conv2dBackwardWeights&) {
            return among({Conv2dBackwardWeights::kDweight, Conv2dBackwardWeights::kDbias});
          },
          [&](const DenseForward&) { return arg == DenseForward::kY; },
          [&](const DenseBackwardData&) { return arg == DenseBackwardData::kDx; },
          [&](const DenseBackwardWeights&) {
            return among({DenseBackwardWeights::kDweight, DenseBackwardWeights::kDbias});
          },
          [&](const ActivationForward&) { return arg == ActivationForward::kY; },
          [&](const ActivationBackward&) { return arg == ActivationBackward::kDx; },
          [&](const BatchNormStatistics&) { return arg == BatchNormStatistics::kSums; },
          [&](const BatchNormForward&) {
            return among({BatchNormForward::kRunningMean, BatchNormForward::kRunningVar,
                          BatchNormForward::kY, BatchNormForward::kSaved});
          },
          [&](const BatchNormInference&) { return arg == BatchNormInference::kY; },
          [&](const BatchNormBackwardSums&) { return arg == BatchNormBackwardSums::kSums; },
          [&](const BatchNormBackward&) {
            return among({BatchNormBackward::kDx, BatchNormBackward::kDresidual,
                          BatchNormBackward::kDgamma, BatchNormBackward::kDbeta});
          },
          [&](const LayerNormForward&) {
            return among({LayerNormForward::kY, LayerNormForward::kSaved});
          },
          [&](const LayerNormBackward&) {
            return among(
                {LayerNormBackward::kDx, LayerNormBackward::kDgamma, LayerNormBackward::kDbeta});
          },
          [&](const MaxPoolForward&) {
            return among({MaxPoolForward::kY, MaxPoolForward::kWorkspace});
          },
          [&](const MaxPoolBackward&) { return arg == MaxPoolBackward::kDx; },
          [&](const AveragePoolForward&) { return arg == AveragePoolForward::kY; },
          [&](const AveragePoolBackward&) { return arg == AveragePoolBackward::kDx; },
          [&](const DropoutForward&) { return arg == DropoutForward::kY; },
          [&](const DropoutBackward&) { return arg == DropoutBackward::kDx; },
          [&](const Add&) { return arg == Add::kY; },
          [&](const Concat&) { return arg == Concat::kY; },
          [&](const Split&) { return arg != Split::kX; },
          [&](const Reorder&) { return arg == Reorder::kTo; },
          [&](const NormalizeInput&) { return arg == NormalizeInput::kY; },
          [&](const SoftmaxCrossEntropy&) {
            return among({SoftmaxCrossEntropy::kDlogits, SoftmaxCrossEntropy::kMetrics});
          },
          [&](const MeanSquaredError&) {
            return among({MeanSquaredError::kDprediction, MeanSquaredError::kMetrics});
          },
          [&](const SumOfSquares&) { return arg == SumOfSquares::kSum; },
          [&](const SgdUpdate&) {
            return among({SgdUpdate::kParameters, SgdUpdate::kVelocity, SgdUpdate::kLowPrecision});
          },
          [&](const AdamUpdate&) {
            return among({AdamUpdate::kParameters, AdamUpdate::kMoment1, AdamUpdate::kMoment2,
                          AdamUpdate::kLowPrecision});
          },
          [&](const ScaleLoss&) { return arg == ScaleLoss::kState; },
          [&](const AdjustLossScale&) { return arg == AdjustLossScale::kScale; }},
      op);
}

}  // namespace trireme
