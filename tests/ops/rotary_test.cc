// Rotary position embeddings: the reference against its definition, each backend against the
// reference.
#include "ops/rotary.h"

#include <cmath>

#include "tests/ops/differences.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  int64_t samples, columns;
  Rotary op;
};

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all{
      {1, 2, {.length = 1, .heads = 1, .head_dim = 2}},
      {2, 19, {.length = 5, .heads = 3, .head_dim = 6}},
      {3, 48, {.length = 7, .heads = 2, .head_dim = 16}},
      {1, 384, {.length = 600, .heads = 4, .head_dim = 64, .base = 500}},
  };
  return all;
}

class RotaryTest : public OpsTest {};

TEST_P(RotaryTest, RotatesForwardAndBack) {
  for (const Problem& p : problems()) {
    for (bool inverse : {false, true}) {
      Rotary op = p.op;
      op.inverse = inverse;
      const Shape x{p.samples * op.length, p.columns};
      check({.name = x.to_string(), .op = op, .tensors = {random(weight(x), 1), weight(x)}});
    }
  }
}

TRIREME_ON_ALL_TARGETS(RotaryTest);

// Position 2 of a head of 4: the pairs (0, 2) and (1, 3) turn by 2 and by 2 / 100^(1/2).
TEST(Rotary, TurnsPairsByTheirAngles) {
  std::vector<Tensor> tensors{numbers({3, 5}, {1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5}),
                              unwritten({3, 5})};
  evaluate(Rotary{.length = 3, .heads = 1, .head_dim = 4, .base = 100}, tensors);
  const double c0 = std::cos(2.0), s0 = std::sin(2.0), c1 = std::cos(0.2), s1 = std::sin(0.2);
  const std::vector<double> expected{c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1, 5};
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(tensors[1][i], tensors[0][i]);  // position 0 stays
    EXPECT_NEAR(tensors[1][10 + i], expected[static_cast<size_t>(i)], 1e-12);
  }
}

TEST(Rotary, TheInverseIsTheGradient) {
  using F = Rotary;
  const F op{.length = 3, .heads = 2, .head_dim = 4};
  std::vector<Tensor> forward{random_numbers({6, 9}, 1), unwritten({6, 9})};
  Tensor dy = random_numbers({6, 9}, 2), dx = unwritten({6, 9});
  F back = op;
  back.inverse = true;
  evaluate(back, {&dy, &dx});
  EXPECT_LT(relative_error(dx, differences(op, forward, F::kX, F::kY, dy)), 1e-7);
}

}  // namespace
}  // namespace trireme::ops
