// Classification and regression scores over any number of ranks, compared with scikit-learn 1.9.1.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tests/comm/ranks.h"
#include "trainer/base/evaluation_metrics.h"
#include "trainer/step/class_scores.h"
#include "trainer/step/regression_scores.h"

namespace trireme::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class ScoresTest : public ::testing::Test {
 protected:
  // Returns whether a sample belongs to this rank, if ranks take turns with `length` samples each.
  // If there are few samples, the last ranks have none.
  bool is_own(size_t sample, size_t length) const {
    return sample / length % static_cast<size_t>(world_->size()) ==
           static_cast<size_t>(world_->rank());
  }

  std::vector<ClassScores> scores_of(int64_t classes, const std::vector<Classified>& samples,
                                     size_t length = 1) const {
    ClassCounts counts(classes);
    for (size_t i = 0; i < samples.size(); ++i) {
      if (is_own(i, length)) counts.add({&samples[i], 1});
    }
    return counts.gather(*world_);
  }

  std::vector<OutputScores> scores_of(const std::vector<std::vector<float>>& predictions,
                                      const std::vector<std::vector<float>>& targets,
                                      size_t length = 1) const {
    RegressionSums sums(static_cast<int64_t>(targets.at(0).size()));
    for (size_t i = 0; i < targets.size(); ++i) {
      if (is_own(i, length)) sums.add(predictions[i], targets[i]);
    }
    return sums.gather(*world_);
  }

  std::unique_ptr<comm::Communicator> world_ = test::join();
};

EvaluationMetrics averages(const auto& scores) {
  EvaluationMetrics metrics;
  set_averages(scores, metrics);
  return metrics;
}

// precision_recall_fscore_support(y, p, zero_division=0), with labels=range(6) and average="macro".
// Class 3 is neither present nor predicted, class 4 is never predicted, class 5 has no samples.
TEST_F(ScoresTest, ClassScoresMatchScikitLearn) {
  const std::vector<Classified> samples = {{0, 0}, {0, 1}, {0, 0}, {1, 1}, {1, 1}, {2, 2},
                                           {2, 0}, {2, 2}, {2, 5}, {4, 0}, {4, 2}, {0, 0}};
  const double precision[] = {0.6, 2.0 / 3, 2.0 / 3, 0, 0, 0};
  const double recall[] = {0.75, 1, 0.5, 0, 0, 0};
  const double f1[] = {2.0 / 3, 0.8, 0.5714285714285714, 0, 0, 0};
  const int64_t support[] = {4, 2, 4, 0, 2, 0};
  for (const size_t length : {1, 5}) {
    const std::vector<ClassScores> scores = scores_of(6, samples, length);
    ASSERT_EQ(scores.size(), 6u);
    for (size_t c = 0; c < 6; ++c) {
      EXPECT_DOUBLE_EQ(scores[c].precision(), precision[c]) << c;
      EXPECT_DOUBLE_EQ(scores[c].recall(), recall[c]) << c;
      EXPECT_DOUBLE_EQ(scores[c].f1(), f1[c]) << c;
      EXPECT_EQ(scores[c].support, support[c]) << c;
    }
    const EvaluationMetrics metrics = averages(scores);
    EXPECT_DOUBLE_EQ(metrics.macro_precision.value(), 0.3866666666666666);
    EXPECT_DOUBLE_EQ(metrics.macro_recall.value(), 0.45);
    EXPECT_DOUBLE_EQ(metrics.macro_f1.value(), 0.4076190476190476);
  }
}

// A sample with non-finite outputs counts as a false negative of its class.
TEST_F(ScoresTest, NonFiniteOutputsPredictNoClass) {
  const std::vector<ClassScores> scores = scores_of(2, {{0, 0}, {0, kNoClass}, {1, 1}});
  EXPECT_EQ(scores[0].support, 2);
  EXPECT_EQ(scores[0].precision(), 1);
  EXPECT_EQ(scores[0].recall(), 0.5);
  EXPECT_EQ(scores[1].predicted, 1);
  EXPECT_DOUBLE_EQ(averages(scores).macro_recall.value(), 0.75);
}

TEST_F(ScoresTest, NoSamplesGiveNoAverages) {
  const EvaluationMetrics metrics = averages(scores_of(3, std::vector<Classified>{}));
  EXPECT_FALSE(metrics.macro_precision || metrics.macro_recall || metrics.macro_f1);
}

TEST_F(ScoresTest, ClassifiesRowsAsTheLossRanksLogits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1, 3,         3, 0,    //
                                     2, kInfinity, 0, 0,    //
                                     0, 0,         0, NAN,  //
                                     9, 9,         9, 9};   // a row of padding
  std::vector<int32_t> labels = {2, 1, 0, 3};
  data::SampleSpec spec;
  spec.classes = 3;  // of four logits
  spec.target = {DType::kI32, Shape{}, Layout::row_major()};
  data::Batch batch;
  batch.targets = reinterpret_cast<std::byte*>(labels.data());
  batch.rows = 3;
  ASSERT_TRUE(ClassCounts::applies_to(spec, 4));
  const std::vector<Classified> samples = classify(spec, batch, logits, 4);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].label, 2);
  EXPECT_EQ(samples[0].predicted, 1);
  EXPECT_EQ(samples[1].predicted, kNoClass);
  EXPECT_EQ(samples[2].predicted, kNoClass);

  // If targets are class probabilities, the label is the most probable class.
  std::vector<float> probabilities = {0.2F, 0.2F, 0.5F, 0.1F};
  spec.classes = 4;
  spec.target = {DType::kF32, Shape{4}, Layout::row_major()};
  batch.targets = reinterpret_cast<std::byte*>(probabilities.data());
  batch.rows = 1;
  ASSERT_TRUE(ClassCounts::applies_to(spec, 4));
  EXPECT_EQ(classify(spec, batch, logits, 4).at(0).label, 2);
}

TEST_F(ScoresTest, ApplyToLimitedNumbersOfClasses) {
  data::SampleSpec spec;
  spec.target = {DType::kI32, Shape{}, Layout::row_major()};
  spec.classes = kMaxScoredClasses;
  EXPECT_TRUE(ClassCounts::applies_to(spec, spec.classes));
  spec.classes = kMaxScoredClasses + 1;
  EXPECT_FALSE(ClassCounts::applies_to(spec, spec.classes));
  spec.classes = 10;
  spec.target = {DType::kI32, Shape{16}, Layout::row_major()};  // next tokens
  EXPECT_FALSE(ClassCounts::applies_to(spec, 10));
}

// mean_absolute_error, root_mean_squared_error and r2_score of float64, with
// multioutput="raw_values" and without. The targets of the first output are far from 0.
TEST_F(ScoresTest, RegressionScoresMatchScikitLearn) {
  const std::vector<std::vector<float>> targets = {{1000000.5F, 0.25F},
                                                   {1000001.5F, -0.5F},
                                                   {1000002, 0.75F},
                                                   {999999.75F, 1},
                                                   {1000003.125F, -2}};
  const std::vector<std::vector<float>> predictions = {
      {1000001, 0.5F}, {1000001, -0.25F}, {1000002.5F, 0.5F}, {1000000, 0.5F}, {1000002.875F, -1}};
  for (const size_t length : {1, 2, 9}) {
    const std::vector<OutputScores> scores = scores_of(predictions, targets, length);
    ASSERT_EQ(scores.size(), 2u);
    const double mae[] = {0.4, 0.45};
    const double rmse[] = {0.4183300132670378, 0.5361902647381804};
    const double r2[] = {0.8727272727272728, 0.7532188841201717};
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(scores[i].mae, mae[i], 1e-12);
      EXPECT_NEAR(scores[i].rmse, rmse[i], 1e-12);
      EXPECT_NEAR(scores[i].r2.value(), r2[i], 1e-12);
    }
    const EvaluationMetrics metrics = averages(scores);
    EXPECT_NEAR(metrics.mae.value(), 0.42500000000000004, 1e-12);
    EXPECT_NEAR(metrics.rmse.value(), 0.4772601390026091, 1e-12);
    EXPECT_NEAR(metrics.r2.value(), 0.8129730784237222, 1e-12);
  }
}

// A sum of squares minus the square of a sum would have lost all digits: 1e9 * (2^24)^2.
TEST_F(ScoresTest, TargetsFarFromZeroKeepPrecision) {
  std::vector<std::vector<float>> targets, predictions;
  for (int i = 0; i < 4000; ++i) {
    targets.push_back({16777216.0F - static_cast<float>(i % 2)});
    predictions.push_back({16777216.0F - static_cast<float>(i % 4 == 1)});
  }
  // Each target adds 1/4 to the spread, and one of four predictions is off by 1.
  const std::vector<OutputScores> scores = scores_of(predictions, targets, 3);
  EXPECT_NEAR(scores[0].r2.value(), 0, 1e-12);
  EXPECT_NEAR(scores[0].mae, 0.25, 1e-15);
}

TEST_F(ScoresTest, EqualTargetsHaveNoR2) {
  for (const size_t length : {1, 2}) {
    // 0.1 is not exact in binary, so its mean may differ between ranks.
    const std::vector<std::vector<float>> targets(7, {0.1F, 1e9F});
    const std::vector<std::vector<float>> predictions(7, {0.1F, 1e9F + 64});
    std::vector<OutputScores> scores = scores_of(predictions, targets, length);
    EXPECT_FALSE(scores[0].r2) << *scores[0].r2;
    EXPECT_FALSE(scores[1].r2) << *scores[1].r2;
    EXPECT_EQ(scores[0].mae, 0);
    EXPECT_EQ(scores[1].rmse, 64);
    EXPECT_FALSE(averages(scores).r2);
    EXPECT_EQ(averages(scores).mae, 32);
    // The mean R2 is unset if one output has none.
    scores[0].r2 = 0.5;
    EXPECT_FALSE(averages(scores).r2);
  }
  EXPECT_FALSE(scores_of({{1}}, {{2}})[0].r2) << "a single sample";
}

TEST_F(ScoresTest, ScoresEachOfManyOutputsSeparately) {
  constexpr size_t kOutputs = 700;
  std::vector<float> targets, predictions;  // of 5 samples
  for (size_t i = 0; i < 5 * kOutputs; ++i) {
    targets.push_back(static_cast<float>(i * i % 101));
    predictions.push_back(static_cast<float>(i * 7 % 97));
  }
  RegressionSums all(kOutputs);
  if (world_->rank() == 0) all.add(predictions, targets);
  const std::vector<OutputScores> scores = all.gather(*world_);
  ASSERT_EQ(scores.size(), kOutputs);
  for (size_t output = 0; output < kOutputs; output += 51) {
    RegressionSums one(1);
    for (size_t row = 0; row < 5; ++row) {
      const size_t at = row * kOutputs + output;
      if (is_own(row, 1)) one.add({&predictions[at], 1}, {&targets[at], 1});
    }
    const OutputScores wanted = one.gather(*world_)[0];
    EXPECT_NEAR(scores[output].mae, wanted.mae, 1e-12) << output;
    EXPECT_NEAR(scores[output].rmse, wanted.rmse, 1e-12) << output;
    EXPECT_NEAR(scores[output].r2.value(), wanted.r2.value(), 1e-10) << output;
  }
}

TEST_F(ScoresTest, NonFinitePredictionsGiveNonFiniteScores) {
  const std::vector<std::vector<float>> targets = {{0}, {1}, {2}};
  const std::vector<OutputScores> nan = scores_of({{0}, {NAN}, {2}}, targets);
  EXPECT_TRUE(std::isnan(nan[0].mae));
  EXPECT_TRUE(std::isnan(nan[0].r2.value()));
  const std::vector<OutputScores> infinite = scores_of({{0}, {INFINITY}, {2}}, targets);
  EXPECT_EQ(infinite[0].rmse, INFINITY);
  EXPECT_EQ(infinite[0].r2.value(), -INFINITY);
}

TEST_F(ScoresTest, NoSamplesGiveNoRegressionScores) {
  const RegressionSums sums(2);
  EXPECT_TRUE(sums.gather(*world_).empty());
  EXPECT_EQ(averages(std::vector<OutputScores>{}), EvaluationMetrics());
}

TEST(EvaluationMetrics, HaveNamesAndDirections) {
  for (const MetricInfo& metric : kEvaluationMetrics) {
    EXPECT_EQ(find_metric(metric.name), &metric);
    EvaluationMetrics metrics;
    metrics.*metric.value = 0.5;
    EXPECT_TRUE(metrics_text(metrics).starts_with(metric.title));
  }
  EXPECT_FALSE(find_metric("loss")->higher_is_better);
  EXPECT_FALSE(find_metric("mae")->higher_is_better);
  EXPECT_FALSE(find_metric("rmse")->higher_is_better);
  for (const char* name :
       {"accuracy", "top5", "macro_precision", "macro_recall", "macro_f1", "r2"}) {
    EXPECT_TRUE(find_metric(name)->higher_is_better) << name;
  }
  EXPECT_EQ(find_metric("f1"), nullptr);
  EXPECT_FALSE(find_metric("top5")->is_for({5}));
  EXPECT_TRUE(find_metric("top5")->is_for({6}));
  EXPECT_FALSE(find_metric("accuracy")->is_for({0}));
  EXPECT_TRUE(find_metric("r2")->is_for({0}));
  EXPECT_FALSE(find_metric("r2")->is_for({2}));
  EXPECT_FALSE(find_metric("perplexity")->is_for({10}));
  EXPECT_TRUE(find_metric("perplexity")->is_for({10, /*tokens=*/true}));
  EXPECT_FALSE(find_metric("macro_f1")->is_for({10, /*tokens=*/true}));
  EXPECT_FALSE(find_metric("bits_per_byte")->is_for({10, /*tokens=*/true}));
  EXPECT_TRUE(find_metric("bits_per_byte")->is_for({10, /*tokens=*/true, /*text=*/true}));
  EXPECT_FALSE(find_metric("objective")->is_for({10}));
  EXPECT_TRUE(find_metric("objective")->is_for({.classes = 10, .reweighted = true}));
}

TEST(EvaluationMetrics, AreFormattedForDisplay) {
  EvaluationMetrics metrics;
  EXPECT_EQ(metrics_text(metrics), "");
  metrics.loss = 0.5;
  metrics.accuracy = 0.9972;
  EXPECT_EQ(metrics_text(metrics), "loss 0.5000, accuracy 99.72%");
  metrics = {.loss = kNan, .mae = 1.5e-7, .r2 = -2};
  EXPECT_EQ(metrics_text(metrics), "loss NaN, MAE 1.5e-07, R2 -2.0000");
}

// They were "4242083337570950656.0000" and "0.0000".
TEST(EvaluationMetrics, HugeAndTinyLossesAreReadable) {
  EXPECT_EQ(metrics_text({.loss = 4242083337570950656.0}), "loss 4.242e+18");
  EXPECT_EQ(metrics_text({.loss = 1.25e-6, .perplexity = 1.5}), "loss 1.25e-06, perplexity 1.5000");
  EXPECT_EQ(loss_text(0), "0.0000");
  EXPECT_EQ(loss_text(0.0134), "0.0134");
  EXPECT_EQ(loss_text(0.00099), "0.00099");
  EXPECT_EQ(loss_text(-9999999), "-9999999.0000");
  EXPECT_EQ(loss_text(1e7), "1e+07");
  EXPECT_EQ(loss_text(INFINITY), "Infinity");
}

}  // namespace
}  // namespace trireme::train
