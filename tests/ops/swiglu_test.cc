// SwiGLU: the reference against differences, each backend against the reference.
#include "ops/swiglu.h"

#include "tests/ops/differences.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{1, 1}, {3, 5}, {2, 16}, {5, 17}, {4, 1032}, {300, 8}};
  return all;
}

TestTensor halves(const Shape& y) { return uniform(weight({y[0], 2 * y[1]}), 1, -6, 6); }

class SwigluTest : public OpsTest {};

TEST_P(SwigluTest, Forward) {
  for (const Shape& y : shapes()) {
    check({.name = y.to_string(), .op = SwigluForward{}, .tensors = {halves(y), weight(y)}});
  }
}

TEST_P(SwigluTest, Backward) {
  for (const Shape& y : shapes()) {
    check({.name = y.to_string(),
           .op = SwigluBackward{},
           .tensors = {halves(y), random(weight(y), 2), weight({y[0], 2 * y[1]})}});
  }
}

TRIREME_ON_ALL_TARGETS(SwigluTest);

TEST(SwigluGradient, MatchesDifferences) {
  using F = SwigluForward;
  std::vector<Tensor> forward{random_numbers({3, 8}, 1), unwritten({3, 4})};
  Tensor dy = random_numbers({3, 4}, 2), dx = unwritten({3, 8});
  evaluate(SwigluBackward{}, {&forward[F::kX], &dy, &dx});
  EXPECT_LT(relative_error(dx, differences(F{}, forward, F::kX, F::kY, dy)), 1e-7);
}

}  // namespace
}  // namespace trireme::ops
