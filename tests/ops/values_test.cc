// The reference against results computed by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "tests/ops/evaluate.h"

namespace trireme::ops {
namespace {

using Numbers = std::vector<double>;

void expect_numbers(const Tensor& got, const Numbers& wanted, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(wanted.size()));
  for (int64_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], wanted[static_cast<size_t>(i)], tolerance) << "at " << i;
  }
}

Tensor counting(const Shape& shape) {
  Tensor tensor = filled(shape, 0);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<double>(i + 1);
  return tensor;
}

TEST(Conv2d, IsACrossCorrelation) {
  Tensor x = counting({1, 1, 3, 3}), weight = numbers({1, 1, 2, 2}, {1, 10, 100, 1000});
  Tensor bias = numbers({1}, {0.5}), none, y = unwritten({1, 1, 2, 2});
  evaluate(Conv2dForward{}, {&x, &weight, &none, &y});
  expect_numbers(y, {5421, 6532, 8754, 9865});
  evaluate(Conv2dForward{}, {&x, &weight, &bias, &y});
  expect_numbers(y, {5421.5, 6532.5, 8754.5, 9865.5});
}

TEST(Conv2d, PadsStridesAndDilates) {
  Tensor x = counting({1, 1, 3, 3}), weight = numbers({1, 1, 2, 2}, {1, 10, 100, 1000}), none;
  Tensor padded = unwritten({1, 1, 2, 2}), dilated = unwritten({1, 1, 1, 1});
  evaluate(Conv2dForward{.geometry = {.stride = {2, 2}, .padding = {1, 1}}},
           {&x, &weight, &none, &padded});
  expect_numbers(padded, {1000, 3200, 7040, 9865});
  evaluate(Conv2dForward{.geometry = {.dilation = {2, 2}}}, {&x, &weight, &none, &dilated});
  expect_numbers(dilated, {1 + 30 + 700 + 9000});
}

TEST(Conv2d, DistinguishesHeightFromWidth) {
  Tensor x = counting({1, 1, 4, 5}), weight = numbers({1, 1, 2, 2}, {1, 10, 100, 1000}), none;
  Tensor y = unwritten({1, 1, 3, 1});
  evaluate(Conv2dForward{.geometry = {.stride = {2, 3}, .padding = {1, 0}, .dilation = {1, 2}}},
           {&x, &weight, &none, &y});
  expect_numbers(y, {100 + 3000, 6 + 80 + 1100 + 13000, 16 + 180});
}

TEST(Conv2d, GroupsUseTheirOwnChannels) {
  Tensor x = numbers({1, 4, 1, 1}, {1, 2, 3, 4}), none, y = unwritten({1, 2, 1, 1});
  Tensor weight = numbers({2, 2, 1, 1}, {1, 10, 100, 1000});
  evaluate(Conv2dForward{.geometry = {.groups = 2}}, {&x, &weight, &none, &y});
  expect_numbers(y, {21, 4300});
}

TEST(Dense, MultipliesByTheTranspose) {
  Tensor x = numbers({2, 3}, {1, 2, 3, 4, 5, 6}), weight = numbers({2, 3}, {1, 0, 2, 0, 1, 3});
  Tensor bias = numbers({2}, {0.5, -20}), y = unwritten({2, 2}), none;
  evaluate(DenseForward{}, {&x, &weight, &bias, &y, &none});
  expect_numbers(y, {7.5, -9, 16.5, 3});
  evaluate(DenseForward{Activation::kRelu}, {&x, &weight, &bias, &y, &none});
  expect_numbers(y, {7.5, 0, 16.5, 3});
}

TEST(Activation, MatchesPublishedValues) {
  const std::vector<std::pair<Activation, Numbers>> wanted{
      {Activation::kNone, {-1, 0, 1}},
      {Activation::kRelu, {0, 0, 1}},
      {Activation::kSigmoid, {0.2689414213699951, 0.5, 0.7310585786300049}},
      {Activation::kTanh, {-0.7615941559557649, 0, 0.7615941559557649}},
      {Activation::kGelu, {-0.15865525393145707, 0, 0.8413447460685429}},
      {Activation::kGeluTanh, {-0.15880800939172324, 0, 0.8411919906082768}},
      {Activation::kSilu, {-0.2689414213699951, 0, 0.7310585786300049}}};
  for (const auto& [activation, values] : wanted) {
    Tensor x = numbers({3}, {-1, 0, 1}), y = unwritten({3});
    evaluate(ActivationForward{activation}, {&x, &y});
    SCOPED_TRACE(name_of(activation));
    expect_numbers(y, values);
  }
}

class BatchNorm : public testing::Test {
 protected:
  // Per channel: 1, 3 and a padding row; mean 2, variance 1, unbiased 2.
  Tensor x = numbers({3, 2}, {1, 10, 3, 30, 100, -100});
  Tensor gamma = numbers({2}, {2, 1}), beta = numbers({2}, {0.5, -1});
  Tensor mean = numbers({2}, {0, 100}), var = numbers({2}, {1, 400});
  Tensor state = state_of({.valid_rows = 2}), none;
  Tensor y = unwritten({3, 2}), saved = unwritten({4});
};

TEST_F(BatchNorm, NormalizesOverValidRows) {
  evaluate(BatchNormForward{.epsilon = 0, .momentum = 0.25f},
           {&x, &none, &gamma, &beta, &none, &state, &mean, &var, &y, &saved});
  expect_numbers(y, {-1.5, -2, 2.5, 0, 196.5, -13});
  expect_numbers(saved, {2, 20, 1, 0.1});
  expect_numbers(mean, {0.5, 80});
  expect_numbers(var, {1.25, 350});  // 1 and 2, 400 and 200
}

TEST_F(BatchNorm, AddsTheResidualBeforeTheRelu) {
  Tensor residual = numbers({3, 2}, {2, 1, -3, 1, 0, 20});
  evaluate(BatchNormForward{.epsilon = 0, .relu = true},
           {&x, &residual, &gamma, &beta, &none, &state, &none, &none, &y, &saved});
  expect_numbers(y, {0.5, 0, 0, 1, 196.5, 7});
}

TEST_F(BatchNorm, UsesGivenSums) {
  Tensor sums = unwritten({5});
  evaluate(BatchNormStatistics{}, {&x, &state, &sums});
  expect_numbers(sums, {4, 40, 10, 1000, 2});
  // Twice the sums, as with the same values on another rank: only the unbiased variance changes.
  for (int i = 0; i < 5; ++i) sums[i] *= 2;
  evaluate(BatchNormForward{.epsilon = 0, .momentum = 0.25f},
           {&x, &none, &gamma, &beta, &sums, &state, &mean, &var, &y, &saved});
  expect_numbers(y, {-1.5, -2, 2.5, 0, 196.5, -13});
  expect_numbers(var, {0.75 + 0.25 * 4 / 3, 300 + 0.25 * 400 / 3});
}

TEST_F(BatchNorm, WithoutValidRowsRunningStatisticsAreUnchanged) {
  state = state_of({.valid_rows = 0});
  evaluate(BatchNormForward{}, {&x, &none, &gamma, &beta, &none, &state, &mean, &var, &y, &saved});
  expect_numbers(mean, {0, 100});
  expect_numbers(var, {1, 400});
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_TRUE(std::isfinite(y[i]));
}

TEST_F(BatchNorm, InferenceUsesRunningStatistics) {
  evaluate(BatchNormInference{.epsilon = 0}, {&x, &none, &gamma, &beta, &mean, &var, &y});
  expect_numbers(y, {2.5, -5.5, 6.5, -4.5, 200.5, -11});
  evaluate(BatchNormInference{.epsilon = 0, .relu = true},
           {&x, &none, &gamma, &beta, &mean, &var, &y});
  expect_numbers(y, {2.5, 0, 6.5, 0, 200.5, 0});
}

// Two ranks that add their sums equal one rank with all rows.
TEST(BatchNormAcrossRanks, EqualsOneRank) {
  const Shape whole{6, 2, 3}, half{3, 2, 3};
  Tensor x = random_numbers(whole, 1), dy = random_numbers(whole, 2);
  Tensor gamma = random_numbers({2}, 3), beta = random_numbers({2}, 4), none;
  Tensor y = unwritten(whole), saved = unwritten({4}), dx = unwritten(whole);
  Tensor dgamma = unwritten({2}), dbeta = unwritten({2}), state = state_of({.valid_rows = 6});
  evaluate(BatchNormForward{.relu = true},
           {&x, &none, &gamma, &beta, &none, &state, &none, &none, &y, &saved});
  evaluate(BatchNormBackward{true},
           {&x, &y, &dy, &gamma, &saved, &none, &state, &dx, &none, &dgamma, &dbeta});

  struct Rank {
    Tensor x, dy, y, dx, sums, saved, dgamma, dbeta;
  };
  std::vector<Rank> ranks;
  const auto part = [&](const Tensor& of, size_t rank) {
    const Numbers all = of.numbers();
    const auto begin = all.begin() + static_cast<ptrdiff_t>(rank * all.size() / 2);
    return numbers(half, Numbers(begin, begin + static_cast<ptrdiff_t>(all.size() / 2)));
  };
  const auto all_reduce = [&] {
    for (int64_t i = 0; i < 5; ++i) ranks[0].sums[i] += ranks[1].sums[i];
    ranks[1].sums = ranks[0].sums;
  };
  state = state_of({.valid_rows = 3});
  for (size_t r = 0; r < 2; ++r) {
    ranks.push_back({part(x, r), part(dy, r), unwritten(half), unwritten(half), unwritten({5}),
                     unwritten({4}), unwritten({2}), unwritten({2})});
    evaluate(BatchNormStatistics{}, {&ranks[r].x, &state, &ranks[r].sums});
  }
  all_reduce();
  for (Rank& rank : ranks) {
    evaluate(BatchNormForward{.relu = true}, {&rank.x, &none, &gamma, &beta, &rank.sums, &state,
                                              &none, &none, &rank.y, &rank.saved});
    evaluate(BatchNormBackwardSums{true},
             {&rank.x, &rank.y, &rank.dy, &rank.saved, &state, &rank.sums});
  }
  all_reduce();
  for (size_t r = 0; r < 2; ++r) {
    Rank& rank = ranks[r];
    evaluate(BatchNormBackward{true}, {&rank.x, &rank.y, &rank.dy, &gamma, &rank.saved, &rank.sums,
                                       &state, &rank.dx, &none, &rank.dgamma, &rank.dbeta});
    EXPECT_LT(relative_error(rank.y, part(y, r)), 1e-12);
    EXPECT_LT(relative_error(rank.dx, part(dx, r)), 1e-12);
  }
  for (int c = 0; c < 2; ++c) {
    EXPECT_NEAR(ranks[0].dgamma[c] + ranks[1].dgamma[c], dgamma[c], 1e-12);
    EXPECT_NEAR(ranks[0].dbeta[c] + ranks[1].dbeta[c], dbeta[c], 1e-12);
  }
}

TEST(LayerNorm, NormalizesEachRow) {
  Tensor x = numbers({2, 2}, {1, 3, -5, 5}), gamma = numbers({2}, {1, 2});
  Tensor beta = numbers({2}, {0, 10}), y = unwritten({2, 2}), saved = unwritten({2, 2}), none;
  evaluate(LayerNormForward{.epsilon = 0}, {&x, &gamma, &beta, &y, &saved});
  expect_numbers(y, {-1, 12, -1, 12});
  expect_numbers(saved, {2, 1, 0, 0.2});
  Tensor inferred = unwritten({2, 2});
  evaluate(LayerNormForward{.epsilon = 0}, {&x, &gamma, &beta, &inferred, &none});
  expect_numbers(inferred, {-1, 12, -1, 12});
}

TEST(MaxPool, FirstOfEqualValuesIsTheMaximum) {
  Tensor x = numbers({1, 1, 2, 4}, {1, 5, 2, 2, 5, 5, 2, 2}), y = unwritten({1, 1, 1, 2});
  Tensor winners = unsized(), dy = numbers({1, 1, 1, 2}, {1, 10}), dx = unwritten({1, 1, 2, 4});
  evaluate(MaxPoolForward{}, {&x, &y, &winners});
  expect_numbers(y, {5, 2});
  evaluate(MaxPoolBackward{}, {&dy, &winners, &dx});
  expect_numbers(dx, {0, 1, 10, 0, 0, 0, 0, 0});
}

TEST(MaxPool, PaddingIsIgnoredAndWindowsMayOverlap) {
  const PoolGeometry geometry{{2, 2}, {1, 1}, {1, 1}};
  Tensor x = numbers({1, 1, 2, 2}, {-1, -2, -3, -4}), y = unwritten({1, 1, 3, 3});
  Tensor winners = unsized(), dy = filled({1, 1, 3, 3}, 1), dx = unwritten({1, 1, 2, 2});
  evaluate(MaxPoolForward{geometry}, {&x, &y, &winners});
  expect_numbers(y, {-1, -1, -2, -1, -1, -2, -3, -3, -4});
  evaluate(MaxPoolBackward{geometry}, {&dy, &winners, &dx});
  expect_numbers(dx, {4, 2, 2, 1});
}

TEST(AveragePool, CountsPaddingOrNot) {
  const PoolGeometry geometry{{2, 2}, {2, 2}, {1, 1}};
  Tensor x = numbers({1, 1, 2, 2}, {4, 8, 12, 16}), y = unwritten({1, 1, 2, 2});
  evaluate(AveragePoolForward{geometry, true}, {&x, &y});
  expect_numbers(y, {1, 2, 3, 4});
  evaluate(AveragePoolForward{geometry, false}, {&x, &y});
  expect_numbers(y, {4, 8, 12, 16});
}

TEST(Pools, DistinguishHeightFromWidth) {
  const PoolGeometry geometry{{1, 2}, {2, 1}, {0, 1}};
  Tensor x = counting({1, 1, 3, 2}), y = unwritten({1, 1, 2, 3}), none;
  evaluate(MaxPoolForward{geometry}, {&x, &y, &none});
  expect_numbers(y, {1, 2, 2, 5, 6, 6});
  evaluate(AveragePoolForward{geometry, true}, {&x, &y});
  expect_numbers(y, {0.5, 1.5, 1, 2.5, 5.5, 3});
}

// The mask as defined in ops/dropout.h, element by element, in another order of loops.
TEST(Dropout, MaskMatchesItsDefinition) {
  const StepState step{.step = 7, .seed = 5, .first_sample = 100, .valid_rows = 2};
  Tensor x = filled({2, 3, 2, 2}, 1), state = state_of(step), y = unwritten({2, 3, 2, 2});
  evaluate(DropoutForward{.rate = 0.5f, .layer = 3}, {&x, &state, &y});
  const Random random(5, RandomPurpose::kDropout, mix64(3) + 7);
  uint64_t index = 100 * 12;
  int retained = 0;
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t w = 0; w < 2; ++w)
        for (int64_t c = 0; c < 3; ++c) {
          const bool keep = random.uniform_at(index++) >= 0.5f;
          retained += keep;
          EXPECT_EQ(y[((n * 3 + c) * 2 + h) * 2 + w], keep ? 2 : 0);
        }
  EXPECT_GT(retained, 0);
  EXPECT_LT(retained, 24);
}

TEST(Dropout, DoesNotDependOnHowTheBatchIsSplit) {
  Tensor x = random_numbers({6, 10}, 1), y = unwritten({6, 10});
  Tensor state = state_of({.step = 2, .seed = 8, .first_sample = 0});
  evaluate(DropoutForward{}, {&x, &state, &y});
  const Numbers all = x.numbers(), wanted = y.numbers();
  Tensor tail = numbers({2, 10}, Numbers(all.begin() + 40, all.end())), tail_y = unwritten({2, 10});
  Tensor shifted = state_of({.step = 2, .seed = 8, .first_sample = 4});
  evaluate(DropoutForward{}, {&tail, &shifted, &tail_y});
  EXPECT_EQ(tail_y.numbers(), Numbers(wanted.begin() + 40, wanted.end()));
}

// Rows whose neighbors were skipped keep their masks.
TEST(Dropout, DoesNotDependOnSkippedSamples) {
  Tensor x = random_numbers({6, 10}, 1), y = unwritten({6, 10});
  Tensor state = state_of({.step = 2, .seed = 8, .first_sample = 3});
  evaluate(DropoutForward{}, {&x, &state, &y});
  const std::vector<int64_t> places{4, 5, 8};  // rows 1, 2 and 5
  Numbers some, wanted;
  for (const int64_t place : places) {
    const auto at = static_cast<size_t>(10 * (place - 3));
    for (size_t i = at; i < at + 10; ++i)
      some.push_back(x.numbers()[i]), wanted.push_back(y.numbers()[i]);
  }
  Tensor rest = numbers({3, 10}, some), rest_y = unwritten({3, 10});
  Tensor skipped = state_of({.step = 2, .seed = 8, .first_sample = 3, .places = places.data()});
  evaluate(DropoutForward{}, {&rest, &skipped, &rest_y});
  EXPECT_EQ(rest_y.numbers(), wanted);
}

TEST(Dropout, MaskDependsOnStepAndLayerAndHasTheRate) {
  Tensor x = filled({100, 100}, 1);
  const auto dropped = [&](int64_t step, uint64_t layer) {
    Tensor state = state_of({.step = step, .seed = 8}), y = unwritten({100, 100});
    evaluate(DropoutForward{.rate = 0.2f, .layer = layer}, {&x, &state, &y});
    return y.numbers();
  };
  const Numbers first = dropped(0, 1);
  EXPECT_EQ(dropped(0, 1), first);
  EXPECT_NE(dropped(1, 1), first);
  EXPECT_NE(dropped(0, 2), first);
  const auto zeros = static_cast<double>(std::count(first.begin(), first.end(), 0.0));
  EXPECT_NEAR(zeros / 10000, 0.2, 0.02);
}

TEST(ConcatAndSplit, RunAlongAxis1) {
  Tensor a = numbers({2, 1, 2}, {1, 2, 3, 4});
  Tensor b = numbers({2, 2, 2}, {10, 20, 30, 40, 50, 60, 70, 80}), y = unwritten({2, 3, 2});
  evaluate(Concat{2}, {&y, &a, &b});
  expect_numbers(y, {1, 2, 10, 20, 30, 40, 3, 4, 50, 60, 70, 80});
  Tensor first = unwritten({2, 1, 2}), second = unwritten({2, 2, 2});
  evaluate(Split{2}, {&y, &first, &second});
  EXPECT_EQ(first.numbers(), a.numbers());
  EXPECT_EQ(second.numbers(), b.numbers());
}

TEST(ConcatAndSplit, SupportRowsAndManyParts) {
  Tensor a = numbers({2, 1}, {1, 2}), b = numbers({2, 2}, {3, 4, 5, 6}),
         c = numbers({2, 1}, {7, 8});
  Tensor y = unwritten({2, 4});
  evaluate(Concat{3}, {&y, &a, &b, &c});
  expect_numbers(y, {1, 3, 4, 7, 2, 5, 6, 8});
}

TEST(Add, MayOverwriteEitherInput) {
  Tensor a = numbers({3}, {1, 2, 3}), b = numbers({3}, {10, 20, 30});
  evaluate(Add{}, {&a, &b, &b});
  expect_numbers(b, {11, 22, 33});
  evaluate(Add{}, {&a, &a, &a});
  expect_numbers(a, {2, 4, 6});
}

TEST(Reorder, ChangesOrder) {
  Tensor x = counting({1, 2, 1, 3});
  Tensor last = stored(DType::kF32, {1, 2, 1, 3}, std::vector<float>(6), Layout::channels_last());
  evaluate(Reorder{}, {&x, &last});
  const std::vector<float> wanted{1, 4, 2, 5, 3, 6};
  EXPECT_EQ(std::vector<float>(last.as<float>(), last.as<float>() + 6), wanted);
  Tensor back = unwritten({1, 2, 1, 3});
  evaluate(Reorder{}, {&last, &back});
  EXPECT_EQ(back.numbers(), x.numbers());
}

TEST(NormalizeInput, ReadsImagesAsStored) {
  const std::vector<uint8_t> pixels{10, 20, 30, 40, 50, 60};  // (red, green) at three positions
  Tensor x = stored(DType::kU8, {1, 2, 1, 3}, pixels, Layout::channels_last());
  Tensor y = unwritten({1, 2, 1, 3});
  evaluate(NormalizeInput{.scale = 0.5f, .mean = {5, 10}, .stddev = {2, 4}}, {&x, &y});
  expect_numbers(y, {0, 5, 10, 0, 2.5, 5});
  x.spec.layout = Layout::row_major();
  evaluate(NormalizeInput{.scale = 0.5f, .mean = {5}, .stddev = {2}}, {&x, &y});
  expect_numbers(y, {0, 2.5, 5, 7.5, 10, 12.5});
}

class CrossEntropy : public testing::Test {
 protected:
  void run(Tensor given, const std::vector<int32_t>& of, int valid, float smoothing = 0) {
    logits = std::move(given);
    dlogits = unwritten(logits.spec.shape);
    Tensor labels = labels_of(of);
    Tensor state = state_of({.valid_rows = valid, .loss_gradient_scale = 0.5f});
    evaluate(SoftmaxCrossEntropy{smoothing}, {&logits, &labels, &state, &dlogits, &metrics});
  }
  float metric(Metric which) const { return metrics.as<float>()[which]; }
  Tensor logits, dlogits, metrics = no_metrics_yet();
};

TEST_F(CrossEntropy, OfEqualLogitsIsTheLogarithmOfTheNumberOfClasses) {
  run(filled({1, 4}, 3), {1}, 1);
  EXPECT_NEAR(metric(kMetricLoss), std::log(4.0), 1e-6);
  expect_numbers(dlogits, {0.125, -0.375, 0.125, 0.125});
  run(filled({1, 4}, 3), {1}, 1, /*smoothing=*/0.5f);
  expect_numbers(dlogits, {0.0625, -0.1875, 0.0625, 0.0625});
  EXPECT_NEAR(metric(kMetricLoss), 2 * std::log(4.0), 1e-6);  // added to the previous value
}

TEST_F(CrossEntropy, RanksTheLowerOfEqualsFirst) {
  run(filled({3, 8}, 3), {0, 1, 4}, 3);
  EXPECT_EQ(metric(kMetricTop1), 1);
  EXPECT_EQ(metric(kMetricTop5), 3);
  EXPECT_EQ(metric(kMetricSamples), 3);
  run(filled({2, 8}, 3), {5, 7}, 2);
  EXPECT_EQ(metric(kMetricTop1), 1);  // unchanged
  EXPECT_EQ(metric(kMetricTop5), 3);
  EXPECT_EQ(metric(kMetricSamples), 5);
}

TEST_F(CrossEntropy, RanksByTheLogits) {
  run(numbers({2, 6}, {6, 5, 4, 3, 2, 1, 1, 2, 3, 4, 5, 6}), {5, 5}, 2);
  EXPECT_EQ(metric(kMetricTop1), 1);
  EXPECT_EQ(metric(kMetricTop5), 1);
}

TEST_F(CrossEntropy, SurvivesLargeLogits) {
  run(numbers({1, 2}, {10000, -10000}), {0}, 1);
  EXPECT_EQ(metric(kMetricLoss), 0);
  expect_numbers(dlogits, {0, 0});
  run(numbers({1, 2}, {10000, -10000}), {1}, 1);
  EXPECT_EQ(metric(kMetricLoss), 20000);
  expect_numbers(dlogits, {0.5, -0.5});
}

// The labels of padding rows are not read.
TEST_F(CrossEntropy, IgnoresPaddingRows) {
  run(filled({3, 2}, 1), {0, -1, 77}, 1);
  EXPECT_EQ(metric(kMetricSamples), 1);
  EXPECT_NEAR(metric(kMetricLoss), std::log(2.0), 1e-6);
  expect_numbers(dlogits, {-0.25, 0.25, 0, 0, 0, 0});
}

TEST_F(CrossEntropy, RejectsInvalidLabels) {
  EXPECT_THROW(run(filled({1, 2}, 1), {2}, 1), Error);
  EXPECT_THROW(run(filled({1, 2}, 1), {-1}, 1), Error);
}

TEST(Loss, NeedsNoGradientInInference) {
  Tensor logits = filled({1, 4}, 3), labels = labels_of({0}), none;
  Tensor state = state_of({.valid_rows = 1}), metrics = no_metrics_yet();
  evaluate(SoftmaxCrossEntropy{}, {&logits, &labels, &state, &none, &metrics});
  EXPECT_NEAR(metrics.as<float>()[kMetricLoss], std::log(4.0), 1e-6);
  Tensor target = filled({1, 4}, 1);
  metrics = no_metrics_yet();
  evaluate(MeanSquaredError{}, {&logits, &target, &state, &none, &metrics});
  EXPECT_EQ(metrics.as<float>()[kMetricLoss], 4);
}

TEST(LossScale, ScalesTheGradientOfTheLoss) {
  Tensor scale = loss_scale_of({.scale = 1024});
  Tensor state = state_of({.step = 7, .valid_rows = 3, .loss_gradient_scale = 0.25f});
  evaluate(ScaleLoss{}, {&scale, &state});
  EXPECT_EQ(state.as<StepState>()->loss_gradient_scale, 256);
  EXPECT_EQ(state.as<StepState>()->step, 7);
  EXPECT_EQ(state.as<StepState>()->valid_rows, 3);
}

TEST(LossScale, GrowsAfterGoodStepsAndHalvesAfterABadOne) {
  constexpr double kBad = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Tensor scale = loss_scale_of({.scale = 8});
  const auto after = [&](double squares) {
    Tensor sum = numbers({1}, {squares});
    Tensor none;
    evaluate(AdjustLossScale{.growth_steps = 3}, {&sum, &scale, &none, &none});
    const LossScale& s = *scale.as<LossScale>();
    return Numbers{s.scale, static_cast<double>(s.good_steps), static_cast<double>(s.skipped)};
  };
  EXPECT_EQ(after(1), (Numbers{8, 1, 0}));
  EXPECT_EQ(after(0), (Numbers{8, 2, 0}));
  EXPECT_EQ(after(1e300), (Numbers{16, 0, 0}));
  EXPECT_EQ(after(1), (Numbers{16, 1, 0}));
  EXPECT_EQ(after(kBad), (Numbers{8, 0, 1}));
  EXPECT_EQ(after(kInfinity), (Numbers{4, 0, 2}));
  EXPECT_EQ(after(1), (Numbers{4, 1, 2}));
  for (int i = 0; i < 4; ++i) after(kInfinity);
  EXPECT_EQ(after(kInfinity), (Numbers{1, 0, 7}));
  for (int i = 0; i < 3 * 30; ++i) after(1);
  EXPECT_EQ(after(1), (Numbers{1 << 24, 1, 7}));
}

TEST(LossScale, ASkippedStepRestoresRunningStatistics) {
  Tensor scale = loss_scale_of({.scale = 8});
  Tensor before = numbers({2}, {1, 2});
  const auto after = [&](double squares) {
    Tensor sum = numbers({1}, {squares}), stats = numbers({2}, {3, std::nan("")});
    evaluate(AdjustLossScale{}, {&sum, &scale, &stats, &before});
    return stats.numbers();
  };
  EXPECT_EQ(after(1)[0], 3);
  EXPECT_EQ(after(std::nan("")), (Numbers{1, 2}));
  EXPECT_EQ(after(-1), (Numbers{1, 2}));
}

TEST(MeanSquaredError, IsTheMeanOverARow) {
  Tensor prediction = numbers({2, 2}, {1, 2, 3, 4}), target = numbers({2, 2}, {0, 4, 0, 0});
  Tensor state = state_of({.valid_rows = 1, .loss_gradient_scale = 0.5f});
  Tensor metrics = no_metrics_yet();
  evaluate(MeanSquaredError{}, {&prediction, &target, &state, &prediction, &metrics});
  expect_numbers(prediction, {0.5, -1, 0, 0});
  EXPECT_EQ(metrics.as<float>()[kMetricLoss], 2.5f);
  EXPECT_EQ(metrics.as<float>()[kMetricSamples], 1);
}

}  // namespace
}  // namespace trireme::ops
