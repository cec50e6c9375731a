// The reference's updates against numbers that PyTorch 2.15 gave for the same steps in double
// precision.
#include <gtest/gtest.h>

#include <functional>

#include "tests/ops/evaluate.h"

namespace trireme {
namespace {

constexpr float kRate = 0.125f;
const std::vector<double> kStart{1, -2, 0.5, 3};
const std::vector<std::vector<double>> kGradients{
    {0.5, -1, 2, 0.1}, {1.5, 0.25, -0.5, 0.2}, {-0.75, 0.5, 1, -0.3}};

UpdateCommon everything(float weight_decay, float max_norm = 0) {
  return {.ranges = {{0, 4, weight_decay, 1}}, .max_norm = max_norm};
}

// Parameters and the optimizer's state, step by step. Where there is a loss scale, gradients are
// given unscaled.
class Training {
 public:
  explicit Training(Op op) : op_(std::move(op)) {}

  void step(const std::vector<double>& gradient, float rate = kRate) {
    const Shape shape{static_cast<int64_t>(gradient.size())};
    const bool scaled = !is_absent(scale.spec);
    gradients = numbers(shape, gradient);
    for (int64_t i = 0; scaled && i < gradients.size(); ++i) {
      gradients[i] *= scale.as<LossScale>()->scale;
    }
    if (const auto* sgd = std::get_if<SgdUpdate>(&op_)) {
      if (sgd->momentum != 0 && is_absent(velocity.spec)) velocity = filled(shape, 0);
      sum_squares(*sgd);
      Tensor state = state_of({.step = steps_, .learning_rate = rate});
      evaluate(op_, {&parameters, &gradients, &velocity, &squares, &scale, &state, &low});
    } else if (const auto* adam = std::get_if<AdamUpdate>(&op_)) {
      if (is_absent(moment1.spec)) moment1 = moment2 = filled(shape, 0);
      sum_squares(*adam);
      Tensor state = state_of({.step = steps_, .learning_rate = rate});
      evaluate(op_, {&parameters, &gradients, &moment1, &moment2, &squares, &scale, &state, &low});
    }
    if (scaled) evaluate(AdjustLossScale{}, {&squares, &scale});
    ++steps_;
  }

  Tensor parameters = numbers({4}, kStart), gradients, velocity, moment1, moment2, squares, scale,
         low;

 private:
  void sum_squares(const UpdateCommon& op) {
    if (op.max_norm <= 0 && is_absent(scale.spec)) return;
    squares = unwritten({1});
    evaluate(SumOfSquares{op.ranges}, {&gradients, &squares});
  }

  Op op_;
  int64_t steps_ = 0;
};

std::vector<double> trained(const Op& op) {
  Training training(op);
  for (const auto& gradient : kGradients) training.step(gradient);
  return training.parameters.numbers();
}

SgdUpdate sgd(float weight_decay, float momentum, bool nesterov = false, float max_norm = 0) {
  SgdUpdate op{everything(weight_decay, max_norm)};
  op.momentum = momentum;
  op.nesterov = nesterov;
  return op;
}

AdamUpdate adam(float weight_decay, bool decoupled, float max_norm = 0) {
  AdamUpdate op{everything(weight_decay, max_norm)};
  op.beta1 = 0.875f;
  op.beta2 = 0.9375f;
  op.epsilon = 0.0078125f;
  op.decoupled = decoupled;
  return op;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& wanted,
                  double tolerance = 1e-13) {
  EXPECT_LT(relative_error(got, wanted), tolerance) << testing::PrintToString(got);
}

TEST(SgdUpdate, IsPyTorchs) {
  expect_close(trained(sgd(0, 0)), {0.84375, -1.96875, 0.1875, 3});
  expect_close(trained(sgd(0.25f, 0)),
               {0.762603759765625, -1.79376220703125, 0.155502319335938, 2.72899780273438});
  expect_close(trained(sgd(0.25f, 0.75f)),
               {0.479888916015625, -1.53302001953125, -0.145523071289062, 2.50546264648437});
  expect_close(trained(sgd(0.25f, 0.75f, /*nesterov=*/true)),
               {0.391324520111084, -1.46447277069092, -0.302705526351929, 2.37410821914673});
}

TEST(AdamUpdate, IsPyTorchs) {
  expect_close(trained(adam(0, false)),
               {0.719812004211571, -1.81521874510146, 0.241940500311556, 2.77966112973756});
  expect_close(trained(adam(0.25f, false)),
               {0.695546089862999, -1.70853845084943, 0.230761518358346, 2.63679012255849});
}

TEST(AdamUpdate, IsPyTorchsAdamW) {
  expect_close(trained(adam(0.25f, true)),
               {0.640073480846188, -1.64294082494826, 0.2059782130622, 2.51781874749155});
}

// PyTorch divides by the norm + 1e-6.
TEST(Update, ClipsAsPyTorchDoes) {
  expect_close(trained(sgd(0, 0.75f, false, /*max_norm=*/1)),
               {0.801553458419796, -1.95317468009837, 0.225099633204093, 2.98746419433933}, 1e-6);
  expect_close(trained(adam(0.25f, true, /*max_norm=*/1)),
               {0.659446632594281, -1.68134882729646, 0.215839126757091, 2.54789563533124}, 1e-6);
}

TEST(Update, LeavesSmallGradientsAlone) {
  EXPECT_EQ(trained(sgd(0, 0.75f, false, /*max_norm=*/100)), trained(sgd(0, 0.75f)));
  Training still(sgd(0, 0.75f, false, /*max_norm=*/1));
  still.step({0, 0, 0, 0});
  EXPECT_EQ(still.parameters.numbers(), kStart);
}

TEST(Update, TakesTheRateOfTheStep) {
  Training training(sgd(0, 0));
  training.step({1, 1, 1, 1}, 0.5f);
  training.step({1, 1, 1, 1}, 0.25f);
  EXPECT_EQ(training.parameters.numbers(), (std::vector<double>{0.25, -2.75, -0.25, 2.25}));
}

TEST(Update, DividesByTheLossScale) {
  for (float max_norm : {0.0f, 1.0f}) {
    for (const Op& op : {Op(sgd(0.25f, 0.75f, false, max_norm)), Op(adam(0.25f, false, max_norm)),
                         Op(adam(0.25f, true, max_norm))}) {
      Training training(op);
      training.scale = loss_scale_of({.scale = 1024});
      for (const auto& gradient : kGradients) training.step(gradient);
      EXPECT_EQ(training.parameters.numbers(), trained(op));
    }
  }
}

// As if the step had never been: its number, too, counts for nothing.
TEST(Update, SkipsGradientsThatAreNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (float max_norm : {0.0f, 1.0f}) {
    for (const Op& op :
         {Op(sgd(0.25f, 0.75f, false, max_norm)), Op(adam(0.25f, false, max_norm))}) {
      Training training(op);
      training.scale = loss_scale_of({.scale = 1024});
      training.low = stored(DType::kF32, {4}, std::vector<float>(4, -1));
      training.step({0, kInfinity, 0, 0});
      EXPECT_EQ(training.parameters.numbers(), kStart);
      EXPECT_EQ(training.low.as<float>()[0], -1);
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

// Each range as if it were alone; nothing outside of them is touched.
TEST(Update, KeepsToItsRanges) {
  const std::vector<Op> updates{sgd(0, 0.75f), adam(0, false), adam(0, true)};
  for (const Op& whole : updates) {
    const auto with_ranges = [&](std::vector<UpdateRange> ranges) {
      Op op = whole;
      if (auto* s = std::get_if<SgdUpdate>(&op)) s->ranges = std::move(ranges);
      if (auto* a = std::get_if<AdamUpdate>(&op)) a->ranges = std::move(ranges);
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

TEST(Update, WritesTheCopyInLowPrecision) {
  for (const Op& op : {Op(sgd(0.25f, 0.75f)), Op(adam(0.25f, true))}) {
    Training training(op);
    training.low = stored(DType::kF32, {4}, std::vector<float>(4, -1));
    training.step(kGradients[0]);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(training.low.as<float>()[i], static_cast<float>(training.parameters[i]));
    }
  }
}

TEST(SumOfSquares, CountsWhatTheRangesCover) {
  Tensor x = numbers({6}, {1, 2, 3, 4, 5, 6}), sum = unwritten({1});
  evaluate(SumOfSquares{{{0, 2, 0, 1}, {3, 4, 0, 1}, {5, 6, 0, 1}}}, {&x, &sum});
  EXPECT_EQ(sum[0], 1 + 4 + 16 + 36);
  evaluate(SumOfSquares{{{0, 2, 0, 1}}, {{3, 6, 0, 1}}}, {&x, &sum});
  EXPECT_EQ(sum[0], 1 + 4);
  evaluate(SumOfSquares{}, {&x, &sum});
  EXPECT_EQ(sum[0], 0);
}

}  // namespace
}  // namespace trireme
