// The reference's updates against numbers that PyTorch 2.15 gave for the same steps in double
// precision.
#include <gtest/gtest.h>

#include "tests/ops/evaluate.h"

namespace trireme::ops {
namespace {

constexpr float kRate = 0.125f;
const std::vector<double> kStart{1, -2, 0.5, 3};
const std::vector<std::vector<double>> kGradients{
    {0.5, -1, 2, 0.1}, {1.5, 0.25, -0.5, 0.2}, {-0.75, 0.5, 1, -0.3}};

// Parameters and the optimizer's state, step by step. Where there is a loss scale, gradients are
// given unscaled.
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
    std::vector<Tensor*> args{&parameters, &gradients_, &squares_, &scale, &state, &low};
    for (Tensor& slot : slots_) {
      if (is_absent(slot.spec)) slot = filled(shape, 0);
      args.push_back(&slot);
    }
    evaluate(op_, args);
    if (scaled) evaluate(AdjustLossScale{}, {&squares_, &scale});
    ++steps_;
  }

  Tensor parameters = numbers({4}, kStart), scale, low;

 private:
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

TEST(Sgd, IsPyTorchs) {
  expect_close(trained(sgd(0, 0)), {0.84375, -1.96875, 0.1875, 3});
  expect_close(trained(sgd(0.25f, 0)),
               {0.762603759765625, -1.79376220703125, 0.155502319335938, 2.72899780273438});
  expect_close(trained(sgd(0.25f, 0.75f)),
               {0.479888916015625, -1.53302001953125, -0.145523071289062, 2.50546264648437});
  expect_close(trained(sgd(0.25f, 0.75f, /*nesterov=*/true)),
               {0.391324520111084, -1.46447277069092, -0.302705526351929, 2.37410821914673});
}

TEST(Adam, IsPyTorchs) {
  expect_close(trained(adam(0, false)),
               {0.719812004211571, -1.81521874510146, 0.241940500311556, 2.77966112973756});
  expect_close(trained(adam(0.25f, false)),
               {0.695546089862999, -1.70853845084943, 0.230761518358346, 2.63679012255849});
}

TEST(Adam, IsPyTorchsAdamW) {
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
    for (const Update& op : {sgd(0.25f, 0.75f, false, max_norm), adam(0.25f, false, max_norm),
                             adam(0.25f, true, max_norm)}) {
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
    for (const Update& op : {sgd(0.25f, 0.75f, false, max_norm), adam(0.25f, false, max_norm)}) {
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

TEST(Update, WritesTheCopyInLowPrecision) {
  for (const Update& op : {sgd(0.25f, 0.75f), adam(0.25f, true)}) {
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
}  // namespace trireme::ops
