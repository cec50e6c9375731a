// The reference's backward operations against central differences of its forward operations.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <numeric>

#include "tests/ops/differences.h"

namespace trireme::ops {
namespace {

constexpr double kTolerance = 1e-7;

struct ConvCase {
  Shape x, weight, y;
  Conv2dGeometry geometry;
};

class ConvGradient : public testing::TestWithParam<ConvCase> {};

TEST_P(ConvGradient, MatchesDifferences) {
  const auto& [x, weight, y, geometry] = GetParam();
  using F = Conv2dForward;
  std::vector<Tensor> forward{random_numbers(x, 1), random_numbers(weight, 2),
                              random_numbers({weight[0]}, 3), unwritten(y)};
  Tensor dy = random_numbers(y, 4);
  Tensor dx = unwritten(x), dweight = unwritten(weight), dbias = unwritten({weight[0]});
  evaluate(Conv2dBackwardData{geometry}, {&dy, &forward[F::kWeight], &dx});
  evaluate(Conv2dBackwardWeights{geometry}, {&forward[F::kX], &dy, &dweight, &dbias});
  const Op op = F{.geometry = geometry};
  EXPECT_LT(relative_error(dx, differences(op, forward, F::kX, F::kY, dy)), kTolerance);
  EXPECT_LT(relative_error(dweight, differences(op, forward, F::kWeight, F::kY, dy)), kTolerance);
  EXPECT_LT(relative_error(dbias, differences(op, forward, F::kBias, F::kY, dy)), kTolerance);

  Tensor no_bias, again = unwritten(weight);
  evaluate(Conv2dBackwardWeights{geometry}, {&forward[F::kX], &dy, &again, &no_bias});
  EXPECT_EQ(again.numbers(), dweight.numbers());
}

INSTANTIATE_TEST_SUITE_P(
    Geometries, ConvGradient,
    testing::Values(
        ConvCase{{2, 3, 5, 4}, {4, 3, 3, 3}, {2, 4, 3, 2}, {}},
        ConvCase{{1, 2, 6, 7}, {3, 2, 3, 2}, {1, 3, 4, 4}, {.stride = {2, 3}, .padding = {2, 2}}},
        ConvCase{{2, 1, 7, 6}, {2, 1, 2, 3}, {2, 2, 5, 4}, {.padding = {0, 1}, .dilation = {2, 2}}},
        ConvCase{{2, 6, 4, 4}, {9, 2, 3, 3}, {2, 9, 4, 4}, {.padding = {1, 1}, .groups = 3}},
        ConvCase{{1, 4, 5, 5},
                 {4, 1, 3, 3},
                 {1, 4, 3, 3},
                 {.stride = {2, 2}, .padding = {1, 1}, .groups = 4}},
        ConvCase{{2, 3, 4, 5}, {2, 3, 1, 1}, {2, 2, 2, 3}, {.stride = {2, 2}}}));

TEST(DenseGradient, MatchesDifferences) {
  using F = DenseForward;
  std::vector<Tensor> forward{random_numbers({3, 5}, 1), random_numbers({4, 5}, 2),
                              random_numbers({4}, 3), unwritten({3, 4}), Tensor()};
  Tensor dy = random_numbers({3, 4}, 4), none;
  Tensor dx = unwritten({3, 5}), dweight = unwritten({4, 5}), dbias = unwritten({4});
  evaluate(DenseBackwardData{}, {&dy, &forward[F::kWeight], &dx, &none});
  evaluate(DenseBackwardWeights{}, {&forward[F::kX], &dy, &dweight, &dbias});
  EXPECT_LT(relative_error(dx, differences(F{}, forward, F::kX, F::kY, dy)), kTolerance);
  EXPECT_LT(relative_error(dweight, differences(F{}, forward, F::kWeight, F::kY, dy)), kTolerance);
  EXPECT_LT(relative_error(dbias, differences(F{}, forward, F::kBias, F::kY, dy)), kTolerance);
}

// The gradient of a layer whose input is computed by GELU.
TEST(DenseGradient, GoesThroughAnActivation) {
  constexpr auto kGelu = Activation::kGeluTanh;
  Tensor z = random_numbers({3, 5}, 1), x = unwritten({3, 5}), weight = random_numbers({4, 5}, 2);
  Tensor dy = random_numbers({3, 4}, 3), dx = x, dz = x, fused = x, none;
  evaluate(DenseBackwardData{}, {&dy, &weight, &dx, &none});
  evaluate(ActivationBackward{kGelu}, {&z, &dx, &dz});
  evaluate(DenseBackwardData{kGelu}, {&dy, &weight, &fused, &z});
  EXPECT_EQ(fused.numbers(), dz.numbers());
}

class ActivationGradient : public testing::TestWithParam<Activation> {};

TEST_P(ActivationGradient, MatchesDifferences) {
  using F = ActivationForward;
  using B = ActivationBackward;
  std::vector<Tensor> forward{random_numbers({40}, 1), unwritten({40})};
  const Tensor dy = random_numbers({40}, 2);
  evaluate(F{GetParam()}, forward);
  const bool from_output = derivative_uses_output(GetParam());
  std::vector<Tensor> backward{forward[from_output ? F::kY : F::kX], dy, unwritten({40})};
  evaluate(B{GetParam()}, backward);
  EXPECT_LT(relative_error(backward[B::kDx], differences(F{GetParam()}, forward, F::kX, F::kY, dy)),
            kTolerance);
}

class FusedActivation : public testing::TestWithParam<Activation> {};

// A fused activation of conv and dense equals the activation of their plain results.
TEST_P(FusedActivation, EqualsASeparateActivation) {
  Tensor x = random_numbers({2, 3, 4, 4}, 1), weight = random_numbers({2, 3, 3, 3}, 2);
  Tensor bias = random_numbers({2}, 3), y = unwritten({2, 2, 2, 2}), fused = y;
  evaluate(Conv2dForward{}, {&x, &weight, &bias, &y});
  evaluate(ActivationForward{GetParam()}, {&y, &y});
  evaluate(Conv2dForward{.geometry = {}, .activation = GetParam()}, {&x, &weight, &bias, &fused});
  EXPECT_EQ(fused.numbers(), y.numbers());

  Tensor rows = random_numbers({3, 5}, 1), matrix = random_numbers({2, 5}, 2);
  Tensor out = unwritten({3, 2}), fused_out = out, none;
  evaluate(DenseForward{}, {&rows, &matrix, &bias, &out, &none});
  evaluate(ActivationForward{GetParam()}, {&out, &out});
  evaluate(DenseForward{.activation = GetParam()}, {&rows, &matrix, &bias, &fused_out, &none});
  EXPECT_EQ(fused_out.numbers(), out.numbers());
}

INSTANTIATE_TEST_SUITE_P(All, ActivationGradient,
                         testing::Values(Activation::kNone, Activation::kRelu, Activation::kSigmoid,
                                         Activation::kTanh, Activation::kGelu,
                                         Activation::kGeluTanh, Activation::kSilu),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

INSTANTIATE_TEST_SUITE_P(All, FusedActivation,
                         testing::Values(Activation::kRelu, Activation::kSigmoid,
                                         Activation::kTanh),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

// An input, gamma, beta and a residual with valid and padding rows.
class BatchNormGradient : public testing::TestWithParam<std::tuple<bool, bool, int>> {
 protected:
  using F = BatchNormForward;
  using B = BatchNormBackward;
  static constexpr int64_t kRows = 5, kChannels = 3;

  bool relu() const { return std::get<0>(GetParam()); }
  bool across_ranks() const { return std::get<1>(GetParam()); }
  int valid() const { return std::get<2>(GetParam()); }

  BatchNormGradient() {
    state.valid_rows = valid();
    forward = {random_numbers(shape, 1),
               random_numbers(shape, 2),
               random_numbers({kChannels}, 3),
               random_numbers({kChannels}, 4),
               Tensor(),
               state_of(state),
               Tensor(),
               Tensor(),
               unwritten(shape),
               unwritten({2 * kChannels})};
    // Padding rows are not part of the objective.
    for (int64_t i = valid() * dy.size() / kRows; i < dy.size(); ++i) dy[i] = 0;
  }

  // With kSums if the statistics are over several ranks.
  void run_forward() {
    if (across_ranks()) {
      forward[F::kSums] = unwritten({2 * kChannels + 1});
      evaluate(BatchNormStatistics{}, {&forward[F::kX], &forward[F::kState], &forward[F::kSums]});
    }
    evaluate(op, forward);
  }
  double objective() {
    run_forward();
    return dot(dy, forward[F::kY]);
  }
  std::vector<Tensor> run_backward(Tensor given_dy) {
    run_forward();
    std::vector<Tensor> backward{forward[F::kX],         forward[F::kY],        std::move(given_dy),
                                 forward[F::kGamma],     forward[F::kSaved],    Tensor(),
                                 forward[F::kState],     unwritten(shape),      unwritten(shape),
                                 unwritten({kChannels}), unwritten({kChannels})};
    if (across_ranks()) {
      backward[B::kSums] = unwritten({2 * kChannels + 1});
      evaluate(BatchNormBackwardSums{relu()},
               {&backward[B::kX], &backward[B::kY], &backward[B::kDy], &backward[B::kSaved],
                &backward[B::kState], &backward[B::kSums]});
    }
    evaluate(B{relu()}, backward);
    return backward;
  }

  StepState state;
  const Shape shape{kRows, kChannels, 2, 3};
  const F op{.epsilon = 1e-3f, .momentum = 0.1f, .relu = std::get<0>(GetParam())};
  std::vector<Tensor> forward;
  Tensor dy = random_numbers(shape, 5);
};

TEST_P(BatchNormGradient, MatchesDifferences) {
  const std::vector<Tensor> backward = run_backward(dy);
  const auto check = [&](int gradient, int input) {
    const Tensor wanted =
        differences(forward[static_cast<size_t>(input)], [&] { return objective(); });
    EXPECT_LT(relative_error(backward[static_cast<size_t>(gradient)], wanted), kTolerance) << input;
  };
  check(B::kDx, F::kX);
  check(B::kDresidual, F::kResidual);
  check(B::kDgamma, F::kGamma);
  check(B::kDbeta, F::kBeta);
}

// The gradient that arrives for padding rows is ignored.
TEST_P(BatchNormGradient, IgnoresPaddingRows) {
  Tensor noisy = dy;
  for (int64_t i = valid() * dy.size() / kRows; i < dy.size(); ++i) noisy[i] = 100;
  const std::vector<Tensor> wanted = run_backward(dy), got = run_backward(noisy);
  for (int gradient : {B::kDx, B::kDresidual, B::kDgamma, B::kDbeta}) {
    EXPECT_EQ(got[static_cast<size_t>(gradient)].numbers(),
              wanted[static_cast<size_t>(gradient)].numbers());
  }
}

INSTANTIATE_TEST_SUITE_P(All, BatchNormGradient,
                         testing::Combine(testing::Bool(), testing::Bool(),
                                          testing::Values(5, 3, 1)));

class LayerNormGradient : public testing::TestWithParam<bool> {};

TEST_P(LayerNormGradient, MatchesDifferences) {
  using F = LayerNormForward;
  using B = LayerNormBackward;
  const bool centered = GetParam();
  std::vector<Tensor> forward{random_numbers({4, 7}, 1), random_numbers({7}, 2),
                              random_numbers({7}, 3), unwritten({4, 7}), unwritten({4, 2})};
  const Tensor dy = random_numbers({4, 7}, 4);
  const Op op = F{.epsilon = 1e-3f, .centered = centered};
  evaluate(op, forward);
  std::vector<Tensor> backward{
      forward[F::kX], dy, forward[F::kGamma], forward[F::kSaved], unwritten({4, 7}), unwritten({7}),
      unwritten({7})};
  evaluate(B{centered}, backward);
  EXPECT_LT(relative_error(backward[B::kDx], differences(op, forward, F::kX, F::kY, dy)),
            kTolerance);
  EXPECT_LT(relative_error(backward[B::kDgamma], differences(op, forward, F::kGamma, F::kY, dy)),
            kTolerance);
  EXPECT_LT(relative_error(backward[B::kDbeta], differences(op, forward, F::kBeta, F::kY, dy)),
            kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Centered, LayerNormGradient, testing::Bool());

struct PoolCase {
  Shape x, y;
  PoolGeometry geometry;
};

class PoolGradient : public testing::TestWithParam<PoolCase> {};

TEST_P(PoolGradient, OfTheMaximumMatchesDifferences) {
  const auto& [x, y, geometry] = GetParam();
  using F = MaxPoolForward;
  std::vector<Tensor> forward{random_numbers(x, 1), unwritten(y), unsized()};
  Tensor dy = random_numbers(y, 2), dx = unwritten(x);
  evaluate(F{geometry}, forward);
  evaluate(MaxPoolBackward{geometry}, {&dy, &forward[F::kWorkspace], &dx});
  EXPECT_LT(relative_error(dx, differences(F{geometry}, forward, F::kX, F::kY, dy)), kTolerance);

  Tensor none, inferred = unwritten(y);
  evaluate(F{geometry}, {&forward[F::kX], &inferred, &none});
  evaluate(F{geometry}, forward);
  EXPECT_EQ(inferred.numbers(), forward[F::kY].numbers());
}

TEST_P(PoolGradient, OfTheMeanMatchesDifferences) {
  const auto& [x, y, geometry] = GetParam();
  using F = AveragePoolForward;
  for (bool include_padding : {true, false}) {
    std::vector<Tensor> forward{random_numbers(x, 1), unwritten(y)};
    Tensor dy = random_numbers(y, 2), dx = unwritten(x);
    evaluate(AveragePoolBackward{geometry, include_padding}, {&dy, &dx});
    EXPECT_LT(
        relative_error(dx, differences(F{geometry, include_padding}, forward, F::kX, F::kY, dy)),
        kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Geometries, PoolGradient,
    testing::Values(PoolCase{{2, 3, 4, 6}, {2, 3, 2, 3}, {}},
                    PoolCase{{1, 2, 7, 5}, {1, 2, 4, 3}, {{3, 3}, {2, 2}, {1, 1}}},
                    PoolCase{{2, 1, 5, 5}, {2, 1, 4, 3}, {{2, 3}, {1, 1}, {0, 0}}},
                    PoolCase{{1, 2, 5, 4}, {1, 2, 2, 2}, {{2, 3}, {3, 4}, {1, 2}}},
                    PoolCase{{2, 2, 3, 4}, {2, 2, 1, 1}, {{3, 4}, {3, 4}, {0, 0}}}));

TEST(DropoutGradient, MatchesDifferences) {
  using F = DropoutForward;
  StepState state{.step = 3, .seed = 9, .first_sample = 6, .valid_rows = 4};
  std::vector<Tensor> forward{random_numbers({4, 3, 2, 2}, 1), state_of(state),
                              unwritten({4, 3, 2, 2})};
  const Tensor dy = random_numbers({4, 3, 2, 2}, 2);
  std::vector<Tensor> backward{dy, state_of(state), unwritten({4, 3, 2, 2})};
  evaluate(DropoutBackward{.rate = 0.3f, .layer = 11}, backward);
  EXPECT_LT(relative_error(backward[DropoutBackward::kDx],
                           differences(F{.rate = 0.3f, .layer = 11}, forward, F::kX, F::kY, dy)),
            kTolerance);
}

// The losses by definition; metrics in f64 can be compared in full precision. `wanted` are
// probabilities of classes.
double cross_entropy(const Tensor& logits, const std::vector<float>& wanted, double smoothing,
                     int64_t rows) {
  const int64_t classes = logits.spec.shape[1];
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[r * classes + c]);
    for (int64_t c = 0; c < classes; ++c) {
      const double target = (1 - smoothing) * double{wanted[static_cast<size_t>(r * classes + c)]} +
                            smoothing / static_cast<double>(classes);
      loss -= target * std::log(std::exp(logits[r * classes + c]) / sum);
    }
  }
  return loss;
}

double squared_error(const Tensor& prediction, const Tensor& target, int64_t rows) {
  const int64_t width = prediction.spec.shape[1];
  double loss = 0;
  for (int64_t i = 0; i < rows * width; ++i) {
    loss += std::pow(prediction[i] - target[i], 2) / static_cast<double>(width);
  }
  return loss;
}

class LossGradient : public testing::TestWithParam<int> {
 protected:
  const StepState state{.valid_rows = GetParam(), .loss_gradient_scale = 0.25f};
};

// `wanted` as the argument of the loss, and as probabilities.
void check_cross_entropy(const Tensor& labels, const std::vector<float>& wanted,
                         const StepState& state) {
  using F = SoftmaxCrossEntropy;
  for (float smoothing : {0.0f, 0.25f}) {
    std::vector<Tensor> tensors{random_numbers({5, 7}, 1), labels, state_of(state),
                                unwritten({5, 7}), filled({kMetricCount}, 0)};
    evaluate(F{smoothing}, tensors);
    const auto objective = [&] {
      return cross_entropy(tensors[F::kLogits], wanted, double{smoothing}, state.valid_rows);
    };
    Tensor gradient = differences(tensors[F::kLogits], objective);
    for (int64_t i = 0; i < gradient.size(); ++i) gradient[i] *= 0.25;
    EXPECT_LT(relative_error(tensors[F::kDlogits], gradient), kTolerance);
    const Tensor& metrics = tensors[F::kMetrics];
    EXPECT_NEAR(metrics[kMetricLoss], objective(), 1e-12);
    EXPECT_EQ(metrics[kMetricSamples], state.valid_rows);
  }
}

TEST_P(LossGradient, OfCrossEntropyMatchesDifferences) {
  const std::vector<int32_t> labels{2, 0, 5, 6, 3};
  std::vector<float> one_hot(5 * 7);
  for (size_t row = 0; row < labels.size(); ++row) {
    one_hot[row * 7 + static_cast<size_t>(labels[row])] = 1;
  }
  check_cross_entropy(labels_of(labels), one_hot, state);
  check_cross_entropy(stored(DType::kF32, {5, 7}, one_hot), one_hot, state);
}

TEST_P(LossGradient, OfCrossEntropyByProbabilitiesMatchesDifferences) {
  // Multiples of 1/64 that sum to 1 in each row.
  std::vector<float> wanted;
  for (int row = 0; row < 5; ++row) {
    for (int c = 0; c < 6; ++c) wanted.push_back(static_cast<float>((row * 5 + c * 3) % 11) / 64);
    wanted.push_back(1 - std::accumulate(wanted.end() - 6, wanted.end(), 0.0f));
  }
  check_cross_entropy(stored(DType::kF32, {5, 7}, wanted), wanted, state);
}

TEST_P(LossGradient, OfLinearCrossEntropyMatchesDifferences) {
  using F = LinearCrossEntropy;
  const F op{{.label_smoothing = 0.25f, .class_weights = {1, 0.5f, 2, 0, 1, 3, 1}}};
  std::vector<Tensor> tensors{random_numbers({5, 4}, 1), random_numbers({7, 4}, 2),
                              random_numbers({7}, 3),    labels_of({2, 0, kIgnoredLabel, 6, 3}),
                              state_of(state),           unwritten({5, 4}),
                              unwritten({7, 4}),         unwritten({7}),
                              filled({kMetricCount}, 0)};
  evaluate(op, tensors);
  const std::vector<Tensor> results = tensors;
  const auto objective = [&] {
    tensors[F::kMetrics] = filled({kMetricCount}, 0);
    evaluate(op, tensors);
    return 0.25 * tensors[F::kMetrics][kMetricLoss];
  };
  for (auto [x, dx] :
       {std::pair{F::kX, F::kDx}, {F::kWeight, F::kDweight}, {F::kBias, F::kDbias}}) {
    EXPECT_LT(relative_error(results[dx], differences(tensors[x], objective)), kTolerance) << x;
  }
}

TEST_P(LossGradient, OfSquaredErrorMatchesDifferences) {
  using F = MeanSquaredError;
  const Tensor target = random_numbers({5, 3}, 2);
  std::vector<Tensor> tensors{random_numbers({5, 3}, 1), target, state_of(state), unwritten({5, 3}),
                              filled({kMetricCount}, 0)};
  evaluate(F{}, tensors);
  const auto objective = [&] { return squared_error(tensors[F::kPrediction], target, GetParam()); };
  Tensor wanted = differences(tensors[F::kPrediction], objective);
  for (int64_t i = 0; i < wanted.size(); ++i) wanted[i] *= 0.25;
  EXPECT_LT(relative_error(tensors[F::kDprediction], wanted), kTolerance);
  const Tensor& metrics = tensors[F::kMetrics];
  EXPECT_NEAR(metrics[kMetricLoss], objective(), 1e-12);
  EXPECT_EQ(metrics[kMetricSamples], GetParam());
}

INSTANTIATE_TEST_SUITE_P(ValidRows, LossGradient, testing::Values(5, 3, 0));

}  // namespace
}  // namespace trireme::ops
