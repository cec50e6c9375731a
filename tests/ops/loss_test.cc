// Losses against the reference.
#include "ops/loss.h"

#include <cmath>

#include "tests/ops/harness.h"

namespace trireme {
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

// Metrics are added to.
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
    // What padding holds is nobody's business.
    tensor.values.push_back(r < p.valid_rows ? static_cast<double>((r * 7 + 2) % p.classes) : -5);
  }
  return tensor;
}

class LossTest : public OpsTest {
 protected:
  void check_cross_entropy(const std::string& name, const Problem& p, const TestTensor& logits) {
    for (float smoothing : {0.0f, 0.1f}) {
      for (bool training : {true, false}) {
        check({.name = name,
               .op = SoftmaxCrossEntropy{smoothing},
               .tensors = {logits, labels(p), state(),
                           training ? weight({p.rows, p.classes}) : none(), metrics()},
               .state = state_of(p)});
      }
    }
  }
};

TEST_P(LossTest, SoftmaxCrossEntropy) {
  for (const Problem& p : problems()) {
    check_cross_entropy("logits", p, uniform(weight({p.rows, p.classes}), 1, -4, 4));
  }
}

// e^x of these overflows or vanishes.
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

// Of equal logits the lower class ranks first.
TEST_P(LossTest, SoftmaxCrossEntropyOfEqualLogits) {
  for (const Problem& p : problems()) {
    TestTensor logits = weight({p.rows, p.classes});
    logits.values.assign(static_cast<size_t>(p.rows * p.classes), 0.75);
    check_cross_entropy("equal logits", p, logits);
    for (size_t i = 0; i < logits.values.size(); i += 3) logits.values[i] = 1;
    check_cross_entropy("some equal logits", p, logits);
  }
}

// A case whose row 3 has this label.
Case labelled(const Problem& p, double label) {
  TestTensor wrong = labels(p);
  wrong.values[3] = label;
  return {.name = "wrong label",
          .op = SoftmaxCrossEntropy{},
          .tensors = {random(weight({p.rows, p.classes}), 1), wrong, state(),
                      weight({p.rows, p.classes}), metrics()},
          .state = state_of(p)};
}

TEST_P(LossTest, RefusesLabelsOutOfRange) {
  if (target_.backend().device().kind() == DeviceKind::kCuda)
    GTEST_SKIP() << "kernels do not throw";
  const Problem p{5, 10, 4};
  for (double label : {-1.0, 10.0}) {
    const Case c = labelled(p, label);
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

TEST_P(LossTest, LabelsOutOfRangeSpoilTheLossOnAGpu) {
  if (target_.backend().device().kind() == DeviceKind::kCpu) GTEST_SKIP() << "the CPU throws";
  using O = SoftmaxCrossEntropy;
  const Problem p{5, 10, 4};
  for (double label : {-1.0, 10.0}) {
    const Case c = labelled(p, label);
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
}  // namespace trireme
