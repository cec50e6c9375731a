// Layer normalization against the reference.
#include "ops/layer_norm.h"

#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{1, 1},    {2, 3},    {5, 16},   {5, 17},
                                      {1, 64},   {2, 128},  {3, 129},  {7, 300},
                                      {3, 1031}, {2, 2048}, {1, 9000}, {900, 24}};
  return all;
}

TestTensor values(const Shape& shape) {
  TestTensor x = random(weight(shape), 1);
  for (double& value : x.values) value = 1.5 * value + 2;
  return x;
}

class LayerNormTest : public OpsTest {};

TEST_P(LayerNormTest, Forward) {
  for (const Shape& x : shapes()) {
    for (bool training : {true, false}) {
      check({.name = training ? "training" : "inference",
             .op = LayerNormForward{.epsilon = 1e-3f},
             .tensors = {values(x), random(full({x[1]}), 2), random(full({x[1]}), 3), weight(x),
                         training ? full({x[0], 2}) : none()}});
    }
  }
}

TEST_P(LayerNormTest, Backward) {
  for (const Shape& x : shapes()) {
    const Case forward{.name = "forward",
                       .op = LayerNormForward{.epsilon = 1e-3f},
                       .tensors = {values(x), random(full({x[1]}), 2), random(full({x[1]}), 3),
                                   weight(x), full({x[0], 2})}};
    const auto saved = reference_values(forward)[LayerNormForward::kSaved];
    check({.name = x.to_string(),
           .op = LayerNormBackward{},
           .tensors = {values(x), random(weight(x), 4), random(full({x[1]}), 2),
                       with(full({x[0], 2}), saved), weight(x), full({x[1]}), full({x[1]})}});
  }
}

// RMS normalization.
TEST_P(LayerNormTest, NotCentered) {
  for (const Shape& x : shapes()) {
    const Case forward{
        .name = x.to_string(),
        .op = LayerNormForward{.epsilon = 1e-3f, .centered = false},
        .tensors = {values(x), random(full({x[1]}), 2), none(), weight(x), full({x[0], 2})}};
    check(forward);
    const auto saved = reference_values(forward)[LayerNormForward::kSaved];
    check({.name = x.to_string(),
           .op = LayerNormBackward{.centered = false},
           .tensors = {values(x), random(weight(x), 4), random(full({x[1]}), 2),
                       with(full({x[0], 2}), saved), weight(x), full({x[1]}), none()}});
  }
}

// A mean that is large compared to the standard deviation must not cause large rounding errors.
TEST_P(LayerNormTest, FarFromZero) {
  for (const Shape& x : {Shape{3, 300}, Shape{2, 2048}}) {
    TestTensor far = values(x);
    for (double& value : far.values) value += 1000;
    check({.name = x.to_string(),
           .op = LayerNormForward{.epsilon = 1e-3f},
           .tensors = {far, random(full({x[1]}), 2), random(full({x[1]}), 3), weight(x),
                       full({x[0], 2})},
           .slack = 10});
  }
}

TRIREME_ON_ALL_TARGETS(LayerNormTest);

}  // namespace
}  // namespace trireme::ops
