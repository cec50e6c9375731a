// Updates of the reference against results of PyTorch 2.15 and other libraries for the same steps
// in double precision.
#include <gtest/gtest.h>

#include "tests/ops/evaluate.h"

namespace trireme::ops {
namespace {

constexpr float kRate = 0.125f;
const std::vector<double> kStart{1, -2, 0.5, 3};
const std::vector<std::vector<double>> kGradients{
    {0.5, -1, 2, 0.1}, {1.5, 0.25, -0.5, 0.2}, {-0.75, 0.5, 1, -0.3}};

// Parameters and optimizer state, step by step. With a loss scale, gradients are passed unscaled.
class Training {
 public:
  explicit Training(Update op) : op_(std::move(op)), slots_(slots_of(op_.rule).size()) {}

  void step(const std::vector<double>& gradient, float rate = kRate) {
    const Shape shape{static_cast<int64_t>(gradient.size())};
    const bool scaled = !is_absent(scale.spec);
    gradients_ = numbers(shape, gradient);
    for (int64_t i = 0; scaled && i < gradients_.size(); ++i) {
      gradients_[i] *= scale.as<LossScale>()->scale;
    }
    if (op_.max_norm > 0 || scaled) {
      squares_ = unwritten({1});
      evaluate(SumOfSquares{op_.ranges}, {&gradients_, &squares_});
    }
    Tensor state = state_of({.step = steps_, .learning_rate = rate});
    for (Tensor& slot : slots_) {
      if (is_absent(slot.spec)) slot = filled(shape, 0);
    }
    if (is_layer_wise(op_.rule)) {
      ratios = unwritten({static_cast<int64_t>(op_.ranges.size())});
      Tensor sums = unwritten({static_cast<int64_t>(op_.ranges.size()), 2});
      evaluate(TensorSquares{op_.rule, op_.ranges, op_.max_norm},
               with_slots({&parameters, &gradients_, &squares_, &scale, &metrics, &state, &sums}));
      evaluate(TrustRatios{op_.rule, op_.ranges}, {&sums, &state, &ratios});
    }
    evaluate(op_, with_slots({&parameters, &gradients_, &squares_, &scale, &metrics, &state, &low,
                              &ratios, &average}));
    Tensor none;
    if (scaled) evaluate(AdjustLossScale{}, {&squares_, &scale, &none, &none});
    ++steps_;
  }

  Tensor parameters = numbers({4}, kStart), scale, metrics, low, ratios, average;

 private:
  std::vector<Tensor*> with_slots(std::vector<Tensor*> args) {
    for (Tensor& slot : slots_) args.push_back(&slot);
    return args;
  }

  Update op_;
  std::vector<Tensor> slots_;
  Tensor gradients_, squares_;
  int64_t steps_ = 0;
};

std::vector<double> trained(const Update& op) {
  Training training(op);
  for (const auto& gradient : kGradients) training.step(gradient);
  return training.parameters.numbers();
}

Update everything(const UpdateRule& rule, float weight_decay, float max_norm) {
  return {rule, {{0, 4, weight_decay, 1}}, max_norm};
}

Update sgd(float weight_decay, float momentum, bool nesterov = false, float max_norm = 0) {
  if (momentum == 0) return everything(Sgd{}, weight_decay, max_norm);
  return everything(SgdMomentum{momentum, nesterov}, weight_decay, max_norm);
}

Update adam(float weight_decay, bool decoupled, float max_norm = 0) {
  return everything(Adam{0.875f, 0.9375f, 0.0078125f, decoupled}, weight_decay, max_norm);
}

void expect_close(const std::vector<double>& got, const std::vector<double>& wanted,
                  double tolerance = 1e-13) {
  EXPECT_LT(relative_error(got, wanted), tolerance) << testing::PrintToString(got);
}

TEST(Sgd, MatchesPyTorch) {
  expect_close(trained(sgd(0, 0)), {0.84375, -1.96875, 0.1875, 3});
  expect_close(trained(sgd(0.25f, 0)),
               {0.762603759765625, -1.79376220703125, 0.155502319335938, 2.72899780273438});
  expect_close(trained(sgd(0.25f, 0.75f)),
               {0.479888916015625, -1.53302001953125, -0.145523071289062, 2.50546264648437});
  expect_close(trained(sgd(0.25f, 0.75f, /*nesterov=*/true)),
               {0.391324520111084, -1.46447277069092, -0.302705526351929, 2.37410821914673});
}

TEST(Adam, MatchesPyTorch) {
  expect_close(trained(adam(0, false)),
               {0.719812004211571, -1.81521874510146, 0.241940500311556, 2.77966112973756});
  expect_close(trained(adam(0.25f, false)),
               {0.695546089862999, -1.70853845084943, 0.230761518358346, 2.63679012255849});
}

TEST(Adam, MatchesPyTorchAdamW) {
  expect_close(trained(adam(0.25f, true)),
               {0.640073480846188, -1.64294082494826, 0.2059782130622, 2.51781874749155});
}

// lion-pytorch 0.2.5, and optax 0.2.8. In the third step momentum outweighs the gradient of element
// 0, not that of element 1.
TEST(Lion, MatchesPublishedImplementations) {
  expect_close(trained(everything(Lion{.beta1 = 0.75f, .beta2 = 0.5f}, 0.25f, 0)),
               {0.545745849609375, -1.70489501953125, 0.0911712646484375, 2.36404418945312});
}

// A tensor of two weights, and a bias of two elements without weight decay and trust ratio.
Update layer_wise(const UpdateRule& rule) {
  return {rule, {{0, 2, 0.25f, 1}, {2, 4, 0, 1, /*use_trust_ratio=*/false}}};
}

// timm 1.0.31.
TEST(Lars, MatchesTimm) {
  expect_close(trained(layer_wise(Lars{.trust_coefficient = 0.25f})),
               {0.830789835105106, -1.81744928117666, -0.183749984800816, 2.95612500143051});
  expect_close(trained(layer_wise(Lars{.sgd = {.nesterov = true}, .trust_coefficient = 0.25f})),
               {0.787753717516536, -1.76974664481504, -0.427874970018864, 2.96051250233352});
  expect_close(trained(layer_wise(Lars{.trust_coefficient = 0.1f, .trust_clip = true})),
               {0.491489923920376, -1.46506500269866, -0.183749984800816, 2.95612500143051});
}

// timm 1.0.31, and optax 0.2.8.
TEST(Lamb, MatchesTimm) {
  const Lamb lamb{.beta1 = 0.875f, .beta2 = 0.9375f, .epsilon = 0.0078125f};
  expect_close(trained(layer_wise(lamb)),
               {0.465282043790938, -1.48767733986924, 0.241940500311556, 2.77966112973756});
  Lamb clipped = lamb;
  clipped.trust_clip = true;
  expect_close(trained(layer_wise(clipped)),
               {0.640073480846188, -1.64294082494826, 0.241940500311556, 2.77966112973756});
}

// For one step from zero moments, r is g / (|g| + epsilon) + weight_decay * p.
TEST(Lamb, MatchesThePaper) {
  Training training({Lamb{.epsilon = 0.25f}, {{0, 4, 0.5f, 1}}});
  training.step({0.5, -1, 2, 0.25});
  const std::vector<double> r{0.5 / 0.75 + 0.5, -1 / 1.25 - 1, 2 / 2.25 + 0.25, 0.25 / 0.5 + 1.5};
  double parameters = 0, direction = 0;
  for (size_t i = 0; i < 4; ++i) {
    parameters += kStart[i] * kStart[i];
    direction += r[i] * r[i];
  }
  const double ratio = std::sqrt(parameters / direction);
  std::vector<double> wanted = kStart;
  for (size_t i = 0; i < 4; ++i) wanted[i] -= double{kRate} * ratio * r[i];
  expect_close(training.parameters.numbers(), wanted, 1e-12);
}

TEST(Lars, MatchesThePaper) {
  Training training({Lars{.trust_coefficient = 0.5f, .epsilon = 0}, {{0, 4, 0.25f, 2}}});
  training.step({3, 0, 0, -4});
  const double norm = std::sqrt(1 + 4 + 0.25 + 9);
  const double local_rate = 2 * double{kRate} * 0.5 * norm / (5 + 0.25 * norm);
  const std::vector<double> g{3, 0, 0, -4};
  std::vector<double> wanted = kStart;
  for (size_t i = 0; i < 4; ++i) wanted[i] -= local_rate * (g[i] + 0.25 * kStart[i]);
  expect_close(training.parameters.numbers(), wanted);
}

TEST(TrustRatios, AreOneIfANormIsZeroOrTheRatioIsDisabled) {
  for (const UpdateRule& rule : {UpdateRule(Lars{}), UpdateRule(Lamb{})}) {
    Training training({rule, {{0, 1}, {1, 2}, {2, 3}, {3, 4, 0, 1, /*use_trust_ratio=*/false}}});
    training.parameters = numbers({4}, {0, 2, 2, 2});
    training.step({1, 0, 1, 1});
    EXPECT_EQ(training.ratios[0], 1);
    EXPECT_EQ(training.ratios[1], 1);
    EXPECT_NE(training.ratios[2], 1);
    EXPECT_EQ(training.ratios[3], 1);
  }
}

// As torch.optim.swa_utils.get_ema_multi_avg_fn, and with TensorFlow's warmup.
TEST(Update, AveragesTheParameters) {
  for (bool warmup : {false, true}) {
    for (const Update& plain : {sgd(0.25f, 0.75f), adam(0, true)}) {
      Update op = plain;
      op.average = {.decay = 0.25, .warmup = warmup};
      Training training(op);
      training.average = training.parameters;
      std::vector<double> wanted = kStart;
      for (size_t step = 0; step < kGradients.size(); ++step) {
        training.step(kGradients[step]);
        const double t = static_cast<double>(step) + 1;
        const double decay = warmup ? std::min(0.25, (1 + t) / (10 + t)) : 0.25;
        for (size_t i = 0; i < 4; ++i) {
          wanted[i] = decay * wanted[i] + (1 - decay) * training.parameters.numbers()[i];
        }
      }
      expect_close(training.average.numbers(), wanted);
      EXPECT_EQ(training.parameters.numbers(), trained(plain));
    }
  }
}

// PyTorch divides by the norm + 1e-6.
TEST(Update, ClippingMatchesPyTorch) {
  expect_close(trained(sgd(0, 0.75f, false, /*max_norm=*/1)),
               {0.801553458419796, -1.95317468009837, 0.225099633204093, 2.98746419433933}, 1e-6);
  expect_close(trained(adam(0.25f, true, /*max_norm=*/1)),
               {0.659446632594281, -1.68134882729646, 0.215839126757091, 2.54789563533124}, 1e-6);
}

TEST(Update, DoesNotClipSmallGradients) {
  EXPECT_EQ(trained(sgd(0, 0.75f, false, /*max_norm=*/100)), trained(sgd(0, 0.75f)));
  Training still(sgd(0, 0.75f, false, /*max_norm=*/1));
  still.step({0, 0, 0, 0});
  EXPECT_EQ(still.parameters.numbers(), kStart);
}

TEST(Update, UsesTheLearningRateOfTheStep) {
  Training training(sgd(0, 0));
  training.step({1, 1, 1, 1}, 0.5f);
  training.step({1, 1, 1, 1}, 0.25f);
  EXPECT_EQ(training.parameters.numbers(), (std::vector<double>{0.25, -2.75, -0.25, 2.25}));
}

// One rule of each kind.
std::vector<Update> every_rule(float max_norm) {
  return {sgd(0.25f, 0.75f, false, max_norm),  adam(0.25f, false, max_norm),
          adam(0.25f, true, max_norm),         everything(Lion{}, 0.25f, max_norm),
          everything(Lars{}, 0.25f, max_norm), everything(Lamb{}, 0.25f, max_norm)};
}

TEST(Update, DividesByTheLossScale) {
  for (float max_norm : {0.0f, 1.0f}) {
    for (const Update& op : every_rule(max_norm)) {
      Training training(op);
      training.scale = loss_scale_of({.scale = 1024});
      for (const auto& gradient : kGradients) training.step(gradient);
      EXPECT_EQ(training.parameters.numbers(), trained(op));
    }
  }
}

// The step must have no effect; its number is not counted either.
TEST(Update, SkipsNonFiniteGradients) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (float max_norm : {0.0f, 1.0f}) {
    for (const Update& op : every_rule(max_norm)) {
      Training training(op);
      training.scale = loss_scale_of({.scale = 1024});
      training.low = stored(DType::kF32, {4}, std::vector<float>(4, -1));
      training.average = filled({4}, -1);
      training.step({0, kInfinity, 0, 0});
      EXPECT_EQ(training.parameters.numbers(), kStart);
      EXPECT_EQ(training.low.as<float>()[0], -1);
      EXPECT_EQ(training.average.numbers(), std::vector<double>(4, -1));
      training.step(kGradients[0]);
      training.step(kGradients[1]);
      training.step({0, 0, 0, kNaN});
      training.step(kGradients[2]);
      EXPECT_EQ(training.parameters.numbers(), trained(op));
      EXPECT_EQ(training.scale.as<LossScale>()->scale, 256);
      EXPECT_EQ(training.scale.as<LossScale>()->skipped, 2);
    }
  }
}

// The second moment would be infinite, and the weight would never be trained again.
TEST(Update, SkipsFiniteGradientsWhoseSquaresOverflow) {
  const std::vector<double> large{0, 2e19, 0, 0};
  for (const Update& op : every_rule(/*max_norm=*/0)) {
    const bool has_squares =
        std::holds_alternative<Adam>(op.rule) || std::holds_alternative<Lamb>(op.rule);
    Training training(op);
    training.scale = loss_scale_of({.scale = 1});
    training.step(large);
    EXPECT_EQ(training.scale.as<LossScale>()->skipped, has_squares ? 1 : 0);
    if (!has_squares) continue;
    EXPECT_EQ(training.parameters.numbers(), kStart);
    for (const auto& gradient : kGradients) training.step(gradient);
    EXPECT_EQ(training.parameters.numbers(), trained(op));
  }
  // After clipping the gradient is small.
  Training clipped(adam(0, true, /*max_norm=*/1));
  clipped.scale = loss_scale_of({.scale = 1});
  clipped.step(large);
  EXPECT_EQ(clipped.scale.as<LossScale>()->skipped, 0);
}

// Each range is updated independently, and elements outside of them are unchanged.
TEST(Update, UpdatesOnlyItsRanges) {
  for (const Update& whole : {sgd(0, 0.75f), adam(0, false), adam(0, true)}) {
    const auto with_ranges = [&](const std::vector<UpdateRange>& ranges) {
      Update op = whole;
      op.ranges = ranges;
      return trained(op);
    };
    const std::vector<double> both = with_ranges({{0, 1, 0.25f, 1}, {2, 4, 0.5f, 0.5f}});
    EXPECT_EQ(both[0], with_ranges({{0, 4, 0.25f, 1}})[0]);
    EXPECT_EQ(both[1], kStart[1]);
    EXPECT_EQ(both[2], with_ranges({{0, 4, 0.5f, 0.5f}})[2]);
    EXPECT_EQ(both[3], with_ranges({{0, 4, 0.5f, 0.5f}})[3]);
    EXPECT_NE(both[2], with_ranges({{0, 4, 0.5f, 1}})[2]);
    EXPECT_NE(both[2], with_ranges({{0, 4, 0.25f, 0.5f}})[2]);
  }
}

TEST(Update, WritesTheLowPrecisionCopy) {
  for (const Update& op : {sgd(0.25f, 0.75f), adam(0.25f, true)}) {
    Training training(op);
    training.low = stored(DType::kF32, {4}, std::vector<float>(4, -1));
    training.step(kGradients[0]);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(training.low.as<float>()[i], static_cast<float>(training.parameters[i]));
    }
  }
}

TEST(SumOfSquares, SumsOverItsRanges) {
  Tensor x = numbers({6}, {1, 2, 3, 4, 5, 6}), sum = unwritten({1});
  evaluate(SumOfSquares{{{0, 2, 0, 1}, {3, 4, 0, 1}, {5, 6, 0, 1}}}, {&x, &sum});
  EXPECT_EQ(sum[0], 1 + 4 + 16 + 36);
  evaluate(SumOfSquares{{{0, 2, 0, 1}}, {{3, 6, 0, 1}}}, {&x, &sum});
  EXPECT_EQ(sum[0], 1 + 4);
  evaluate(SumOfSquares{}, {&x, &sum});
  EXPECT_EQ(sum[0], 0);
}

}  // namespace
}  // namespace trireme::ops
