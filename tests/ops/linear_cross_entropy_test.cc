// Losses of dense layers, in chunks of rows, against the reference.
#include "ops/linear_cross_entropy.h"

#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  std::string name;
  int64_t rows, in, classes;
  int32_t valid_rows;  // samples
  LinearCrossEntropy op;
  bool bias = true;
};

std::vector<float> class_weights(int64_t classes) {
  std::vector<float> weights;
  for (int64_t c = 0; c < classes; ++c) weights.push_back(0.375f * static_cast<float>(c % 5));
  return weights;
}

std::vector<Problem> problems() {
  return {
      {"one row", 1, 3, 5, 1, {}},
      {"one chunk", 20, 8, 33, 20, {}, false},
      {"two chunks", 32, 8, 17, 32, {.chunk_rows = 16}},
      {"short last chunk", 37, 9, 10, 37, {.loss = {.label_smoothing = 0.1f}, .chunk_rows = 16}},
      {"padding in the first chunk", 33, 8, 10, 9, {.chunk_rows = 16}, false},
      {"no valid rows", 33, 8, 10, 0, {.chunk_rows = 16}},
      {"samples across chunks",
       70,
       16,
       11,
       5,
       {.loss = {.class_weights = class_weights(11), .labels_per_sample = 10, .ignore_index = 7},
        .chunk_rows = 32}},
      {"ignored labels",
       40,
       8,
       100,
       2,
       {.loss = {.label_smoothing = 0.2f, .labels_per_sample = 20}, .chunk_rows = 16},
       false}};
}

// Every third label is ignored. Those of padding rows are invalid.
TestTensor labels_of(const Problem& p) {
  TestTensor tensor = exact(DType::kI32, {p.rows});
  for (int64_t r = 0; r < p.rows; ++r) {
    const bool valid = r < p.valid_rows * p.op.loss.labels_per_sample;
    const int64_t label = r % 3 == 1 && p.rows > 1 ? kIgnoredLabel : (r * 7 + 2) % p.classes;
    tensor.values.push_back(valid ? static_cast<double>(label) : -5);
  }
  return tensor;
}

class LinearCrossEntropyTest : public OpsTest {
 protected:
  // Checks the problem with these gradients.
  void check_gradients(const Problem& p, const TestTensor& dx, const TestTensor& dweight) {
    const bool has_dbias = p.bias && dweight.kind != TestTensor::Kind::kAbsent;
    StepState step;
    step.valid_rows = p.valid_rows;
    step.loss_gradient_scale = 0.25f;
    check({.name = p.name,
           .op = p.op,
           .tensors = {random(weight({p.rows, p.in}), 1),
                       uniform(weight({p.classes, p.in}), 2, -0.5, 0.5),
                       p.bias ? random(weight({p.classes}), 3) : none(), labels_of(p), state(), dx,
                       dweight, has_dbias ? full({p.classes}) : none(),
                       with(exact(DType::kF32, {kMetricCount}),
                            std::vector<double>(kMetricCount, 0.5))},
           .state = step});
  }
};

TEST_P(LinearCrossEntropyTest, Training) {
  for (const Problem& p : problems()) {
    check_gradients(p, weight({p.rows, p.in}), full({p.classes, p.in}));
  }
}

TEST_P(LinearCrossEntropyTest, Evaluation) {
  for (const Problem& p : problems()) check_gradients(p, none(), none());
}

TEST_P(LinearCrossEntropyTest, FrozenWeightOrInput) {
  for (const Problem& p : problems()) {
    check_gradients(p, weight({p.rows, p.in}), none());
    check_gradients(p, none(), full({p.classes, p.in}));
  }
}

TRIREME_ON_TARGETS(LinearCrossEntropyTest, multiplying_targets());

}  // namespace
}  // namespace trireme::ops
