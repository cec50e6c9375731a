// Losses against the reference.
#include "ops/loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  int64_t rows, classes;
  int32_t valid_rows;
};

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all{{1, 1, 1},    {5, 3, 5},    {5, 10, 3},     {2, 17, 2},
                                        {16, 10, 16}, {3, 1000, 2}, {5, 100, 0},    {8, 6, 7},
                                        {3, 1027, 3}, {2, 5000, 1}, {1100, 4, 1050}};
  return all;
}

// The op adds to the metrics, so they start with nonzero values.
TestTensor metrics() {
  std::vector<double> values(kMetricCount);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) + 0.5;
  return with(exact(DType::kF32, {kMetricCount}), values);
}

StepState state_of(const Problem& p) {
  StepState state;
  state.valid_rows = p.valid_rows;
  state.loss_gradient_scale = 0.25f;
  return state;
}

TestTensor labels(const Problem& p) {
  TestTensor tensor = exact(DType::kI32, {p.rows});
  for (int64_t r = 0; r < p.rows; ++r) {
    // Labels of padding rows are invalid; they must not be read.
    tensor.values.push_back(r < p.valid_rows ? static_cast<double>((r * 7 + 2) % p.classes) : -5);
  }
  return tensor;
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Labels as one-hot probabilities.
TestTensor one_hot(const Problem& p) {
  TestTensor tensor = exact(DType::kF32, {p.rows, p.classes});
  const TestTensor hard = labels(p);
  for (int64_t r = 0; r < p.rows; ++r) {
    const double label = hard.values[static_cast<size_t>(r)];
    for (int64_t c = 0; c < p.classes; ++c) {
      tensor.values.push_back(label < 0 ? kNaN
                                        : static_cast<double>(static_cast<double>(c) == label));
    }
  }
  return tensor;
}

// Some rows have two equally probable classes, some have one more probable class, and in some all
// classes have a probability.
TestTensor mixed(const Problem& p) {
  TestTensor tensor = one_hot(p);
  const auto classes = static_cast<size_t>(p.classes);
  for (size_t r = 0; r < static_cast<size_t>(p.valid_rows); ++r) {
    const std::span<double> row = std::span(tensor.values).subspan(r * classes, classes);
    const double share = std::array{0.5, 0.75, 0.25, 0.125}[r % 4];
    for (double& value : row) value *= share;
    if (r % 5 == 4) {
      for (double& value : row) {
        value = static_cast<double>(static_cast<float>(value + (1 - share) / double(p.classes)));
      }
    } else {
      row[(r * 11 + 5) % classes] += 1 - share;
    }
  }
  return tensor;
}

// One class has weight zero, others have weights below or above 1.
std::vector<float> class_weights(const Problem& p) {
  std::vector<float> weights;
  for (int64_t c = 0; c < p.classes; ++c) weights.push_back(0.375f * static_cast<float>(c % 8));
  return weights;
}

class LossTest : public OpsTest {
 protected:
  void check_cross_entropy(const std::string& name, const Problem& p, const TestTensor& logits) {
    for (const auto& [kind, wanted] :
         {std::pair{"labels", labels(p)}, {"probabilities", mixed(p)}}) {
      for (const auto& [smoothing, weighted] :
           {std::pair{0.0f, false}, {0.1f, false}, {0.1f, true}}) {
        for (bool training : {true, false}) {
          if (weighted && !training) continue;  // differs only in the gradient
          check({.name = name + ", " + kind + (weighted ? ", weighted" : ""),
                 .op = SoftmaxCrossEntropy{smoothing,
                                           weighted ? class_weights(p) : std::vector<float>()},
                 .tensors = {logits, wanted, state(),
                             training ? weight({p.rows, p.classes}) : none(), metrics()},
                 .state = state_of(p)});
        }
      }
    }
  }

  // Returns the target's results of a case, in the order of Arg.
  std::vector<std::vector<double>> results_of(const Case& c) {
    const auto [specs, memory] =
        target_memory(c, std::vector<Layout>(c.tensors.size(), Layout::row_major()));
    std::vector<std::vector<double>> results;
    for (size_t i = 0; i < specs.size(); ++i) {
      const bool number = !is_absent(specs[i]) && c.tensors[i].kind != TestTensor::Kind::kState;
      results.push_back(number ? target_.unpack(specs[i], memory[i]) : std::vector<double>());
    }
    return results;
  }
};

TEST_P(LossTest, SoftmaxCrossEntropy) {
  for (const Problem& p : problems()) {
    check_cross_entropy("logits", p, uniform(weight({p.rows, p.classes}), 1, -4, 4));
  }
}

// Samples of three labels, of which some are ignored.
TEST_P(LossTest, IgnoresLabels) {
  const Problem p{12, 10, 3};
  TestTensor wanted = labels({12, 10, 9});
  wanted.values[1] = kIgnoredLabel;
  wanted.values[4] = 7;
  wanted.values[8] = kIgnoredLabel;
  for (const int32_t ignore_index : {kIgnoredLabel, 7}) {
    for (const bool weighted : {false, true}) {
      for (const bool training : {true, false}) {
        check({.name = "ignore_index " + std::to_string(ignore_index),
               .op = SoftmaxCrossEntropy{.label_smoothing = 0.1f,
                                         .class_weights =
                                             weighted ? class_weights(p) : std::vector<float>(),
                                         .labels_per_sample = 3,
                                         .ignore_index = ignore_index},
               .tensors = {uniform(weight({p.rows, p.classes}), 1, -4, 4), wanted, state(),
                           training ? weight({p.rows, p.classes}) : none(), metrics()},
               .state = state_of(p)});
      }
    }
  }
}

// Six rows of samples of four labels, from row 6 on: the second half of the second sample and the
// third one.
TEST_P(LossTest, SoftmaxCrossEntropyOfSomeRows) {
  for (const int32_t samples : {0, 1, 2, 3, 4}) {
    const int32_t valid = std::clamp(samples * 4 - 6, 0, 6);
    check({.name = std::to_string(samples) + " samples",
           .op = SoftmaxCrossEntropy{.labels_per_sample = 4, .first_row = 6},
           .tensors = {uniform(weight({6, 10}), 1, -4, 4), labels({6, 10, valid}), state(),
                       weight({6, 10}), metrics()},
           .state = state_of({6, 10, samples})});
  }
}

// e^x of these overflows or underflows.
TEST_P(LossTest, SoftmaxCrossEntropyOfLargeLogits) {
  const Problem p{5, 10, 5};
  TestTensor logits = weight({p.rows, p.classes});
  for (int64_t i = 0; i < p.rows * p.classes; ++i) {
    logits.values.push_back(static_cast<double>(i % 7 * 64 - 200 + i));
  }
  check_cross_entropy("large logits", p, logits);
  for (double& value : logits.values) value = -value * 16;
  check_cross_entropy("larger logits", p, logits);
}

// Classes with equal logits are ranked by index.
TEST_P(LossTest, SoftmaxCrossEntropyOfEqualLogits) {
  for (const Problem& p : problems()) {
    if (p.rows > 100) continue;  // saves time
    TestTensor logits = weight({p.rows, p.classes});
    logits.values.assign(static_cast<size_t>(p.rows * p.classes), 0.75);
    check_cross_entropy("equal logits", p, logits);
    for (size_t i = 0; i < logits.values.size(); i += 3) logits.values[i] = 1;
    check_cross_entropy("some equal logits", p, logits);
  }
}

TEST_P(LossTest, SoftmaxCrossEntropyByHand) {
  using O = SoftmaxCrossEntropy;
  // softmax is 1/2, 1/4, 1/8, 1/8.
  const double ln2 = std::log(2.0);
  TestTensor logits = with(weight({2, 4}), {0, -ln2, -2 * ln2, -2 * ln2, 0, 0, 0, 0});
  // Of equally probable classes, the one with the lower index is the correct one.
  const TestTensor wanted = with(exact(DType::kF32, {2, 4}), {0.25, 0.25, 0.5, 0, 0, 0, 0.5, 0.5});
  StepState two_rows;
  two_rows.valid_rows = 2;
  two_rows.loss_gradient_scale = 8;
  const std::vector<std::vector<double>> results =
      results_of({.name = "by hand",
                  .op = SoftmaxCrossEntropy{},
                  .tensors = {logits, wanted, state(), weight({2, 4}),
                              with(exact(DType::kF32, {kMetricCount}),
                                   std::vector<double>(kMetricCount, 0.0))},
                  .state = two_rows});
  const double near = GetParam().tolerance * 8;
  // Row 0: (1/4) ln 2 + (1/4) 2 ln 2 + (1/2) 3 ln 2; row 1: ln 4.
  EXPECT_NEAR(results[O::kMetrics][kMetricLoss], 2.25 * ln2 + 2 * ln2, near);
  EXPECT_EQ(results[O::kMetrics][kMetricTop1], 0);
  EXPECT_EQ(results[O::kMetrics][kMetricTop5], 2);
  EXPECT_EQ(results[O::kMetrics][kMetricSamples], 2);
  const std::vector<double> gradient{2, 0, -3, 1, 2, 2, -2, -2};
  for (size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_NEAR(results[O::kDlogits][i], gradient[i], near) << "at " << i;
  }
}

// Results of torch.nn.CrossEntropyLoss(weight, label_smoothing), with reduction="sum" for the loss
// and "mean" for the gradient. The plain loss is that of CrossEntropyLoss(reduction="sum").
TEST_P(LossTest, ClassWeightsMatchPyTorch) {
  using O = SoftmaxCrossEntropy;
  const TestTensor logits = with(weight({3, 3}), {1, 0, -1, 0.5, 0.5, 2, -1.5, 0.25, 0});
  struct Expected {
    TestTensor labels;
    float smoothing;
    double loss, plain, weight;
    std::vector<double> gradient;
  };
  const TestTensor hard = with(exact(DType::kI32, {3}), {2, 0, 1});
  const TestTensor soft =
      with(exact(DType::kF32, {3, 3}), {0.25, 0, 0.75, 0.5, 0.5, 0, 0.125, 0.25, 0.625});
  const std::vector<Expected> all = {
      {hard,
       0,
       11.2340633,
       4.94573594,
       5.5,
       {0.483811604, 0.177984343, -0.661795947, -0.0768835661, 0.0140255248, 0.0628580413,
        0.0161813333, -0.0887010379, 0.0725197046}},
      {hard,
       0.125f,
       10.7079949,
       4.94573594,
       5.5,
       {0.447265648, 0.158357562, -0.60562321, -0.0646326336, 0.0111249422, 0.0535076914,
        0.0140790101, -0.0638498203, 0.0497708102}},
      {soft,
       0,
       11.2918607,
       4.82073593,
       3,
       {0.651292662, 0.254925491, -0.906218153, -0.0447631401, -0.128096473, 0.172859614,
        0.0626016665, 0.39680194, -0.459403606}},
      {soft,
       0.125f,
       10.7585676,
       4.82073593,
       3,
       {0.613753652, 0.227865451, -0.841619104, -0.0343268552, -0.114187966, 0.148514822,
        0.0546304211, 0.372434942, -0.427065363}}};
  for (const Expected& expected : all) {
    StepState step;
    step.valid_rows = 3;
    step.loss_gradient_scale = static_cast<float>(1 / expected.weight);
    const auto results = results_of({.name = "PyTorch",
                                     .op = SoftmaxCrossEntropy{expected.smoothing, {0.5, 1, 4}},
                                     .tensors = {logits, expected.labels, state(), weight({3, 3}),
                                                 with(exact(DType::kF32, {kMetricCount}),
                                                      std::vector<double>(kMetricCount, 0.0))},
                                     .state = step});
    const double near = GetParam().tolerance * 8;
    EXPECT_NEAR(results[O::kMetrics][kMetricLoss], expected.loss, near);
    EXPECT_NEAR(results[O::kMetrics][kMetricPlainLoss], expected.plain, near);
    EXPECT_NEAR(results[O::kMetrics][kMetricWeight], expected.weight, 1e-6);
    EXPECT_EQ(results[O::kMetrics][kMetricSamples], 3);
    for (size_t i = 0; i < expected.gradient.size(); ++i) {
      EXPECT_NEAR(results[O::kDlogits][i], expected.gradient[i], near) << "at " << i;
    }
  }
}

// A one-hot probability must have the same effect as the label.
TEST_P(LossTest, OneHotProbabilitiesEqualLabels) {
  using O = SoftmaxCrossEntropy;
  for (const Problem& p : problems()) {
    for (float smoothing : {0.0f, 0.1f}) {
      Case c{.name = "labels",
             .op = SoftmaxCrossEntropy{smoothing},
             .tensors = {uniform(weight({p.rows, p.classes}), 1, -4, 4), labels(p), state(),
                         weight({p.rows, p.classes}), metrics()},
             .state = state_of(p)};
      const auto hard = results_of(c);
      c.tensors[O::kLabels] = one_hot(p);
      const auto soft = results_of(c);
      EXPECT_EQ(soft[O::kMetrics], hard[O::kMetrics]);
      ASSERT_EQ(soft[O::kDlogits].size(), hard[O::kDlogits].size());
      for (size_t i = 0; i < hard[O::kDlogits].size(); ++i) {
        EXPECT_NEAR(soft[O::kDlogits][i], hard[O::kDlogits][i], 0.25 * GetParam().tolerance);
      }
    }
  }
}

// A single one must make the loss non-finite, so that it is noticed, and the gradient of its own
// logit.
TEST_P(LossTest, NonFiniteProbabilitiesMakeTheLossNonFinite) {
  using O = SoftmaxCrossEntropy;
  const Problem p{5, 10, 4};
  for (double bad : {kNaN, std::numeric_limits<double>::infinity()}) {
    TestTensor wanted = mixed(p);
    wanted.values[3 * 10 + 6] = bad;
    const auto results = results_of({.name = "bad",
                                     .op = SoftmaxCrossEntropy{},
                                     .tensors = {random(weight({p.rows, p.classes}), 1), wanted,
                                                 state(), weight({p.rows, p.classes}), metrics()},
                                     .state = state_of(p)});
    EXPECT_FALSE(std::isfinite(results[O::kMetrics][kMetricLoss]));
    for (size_t i = 0; i < results[O::kDlogits].size(); ++i) {
      EXPECT_EQ(std::isfinite(results[O::kDlogits][i]), i != 36) << "at " << i;
    }
  }
}

// Rows with logits that are not finite are not ranked: neither a sample with such a logit of its
// label nor one with such a logit of another class counts as correct.
TEST_P(LossTest, SoftmaxCrossEntropyOfLogitsThatAreNotFinite) {
  using O = SoftmaxCrossEntropy;
  const Problem p{3, 4, 3};
  for (double bad : {kNaN, -std::numeric_limits<double>::infinity()}) {
    TestTensor logits = with(weight({3, 4}), {bad, bad, bad, bad, 0, 0, 9, bad, 0, 9, 0, 0});
    TestTensor wanted = with(exact(DType::kI32, {3}), {0, 2, 1});
    const auto results = results_of({.name = "not finite",
                                     .op = SoftmaxCrossEntropy{},
                                     .tensors = {logits, wanted, state(), weight({3, 4}),
                                                 with(exact(DType::kF32, {kMetricCount}),
                                                      std::vector<double>(kMetricCount, 0.0))},
                                     .state = state_of(p)});
    EXPECT_TRUE(std::isnan(results[O::kMetrics][kMetricLoss]));
    EXPECT_TRUE(std::isnan(results[O::kMetrics][kMetricPlainLoss]));
    EXPECT_EQ(results[O::kMetrics][kMetricTop1], 1);
    EXPECT_EQ(results[O::kMetrics][kMetricTop5], 1);
    EXPECT_EQ(results[O::kMetrics][kMetricSamples], 3);
  }
}

// Returns a case in which row 3 has this label.
Case labeled(const Problem& p, double label) {
  TestTensor wrong = labels(p);
  wrong.values[3] = label;
  return {.name = "wrong label",
          .op = SoftmaxCrossEntropy{},
          .tensors = {random(weight({p.rows, p.classes}), 1), wrong, state(),
                      weight({p.rows, p.classes}), metrics()},
          .state = state_of(p)};
}

TEST_P(LossTest, RejectsLabelsOutOfRange) {
  if (target_.backend().device().kind() == DeviceKind::kCuda)
    GTEST_SKIP() << "kernels do not throw";
  const Problem p{5, 10, 4};
  for (double label : {-1.0, 10.0}) {
    const Case c = labeled(p, label);
    const std::vector<Layout> row(c.tensors.size(), Layout::row_major());
    try {
      target_memory(c, row);
      ADD_FAILURE() << "took label " << label;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("row 3"), std::string::npos) << message;
      EXPECT_NE(message.find("10 classes"), std::string::npos) << message;
    }
  }
}

TEST_P(LossTest, LabelsOutOfRangeMakeTheLossNanOnAGpu) {
  if (target_.backend().device().kind() == DeviceKind::kCpu) GTEST_SKIP() << "the CPU throws";
  using O = SoftmaxCrossEntropy;
  const Problem p{5, 10, 4};
  for (double label : {-1.0, 10.0}) {
    const Case c = labeled(p, label);
    const std::vector<Layout> row(c.tensors.size(), Layout::row_major());
    const auto [specs, memory] = target_memory(c, row);
    const auto sums = target_.unpack(specs[O::kMetrics], memory[O::kMetrics]);
    EXPECT_TRUE(std::isnan(sums[kMetricLoss]));
    EXPECT_EQ(sums[kMetricSamples], metrics().values[kMetricSamples] + p.valid_rows);
    const auto gradient = target_.unpack(specs[O::kDlogits], memory[O::kDlogits]);
    for (size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_EQ(std::isnan(gradient[i]), i / 10 == 3) << "at " << i;
    }
  }
}

TEST_P(LossTest, MeanSquaredError) {
  for (const Problem& p : problems()) {
    for (bool training : {true, false}) {
      const Shape shape{p.rows, p.classes};
      check({.name = training ? "training" : "inference",
             .op = MeanSquaredError{},
             .tensors = {random(weight(shape), 1), random(full(shape), 2), state(),
                         training ? weight(shape) : none(), metrics()},
             .state = state_of(p)});
    }
  }
}

TRIREME_ON_ALL_TARGETS(LossTest);

}  // namespace
}  // namespace trireme::ops
