// Updates of the parameters against the reference. Arrays have gaps that no range covers; the
// harness demands that they stay as they were to the last bit.
#include <cmath>
#include <limits>

#include "ops/optimizer.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Arrays {
  std::string name;
  int64_t elements;
  std::vector<UpdateRange> ranges;
};

std::vector<Arrays> arrays() {
  return {
      {"one element", 1, {{0, 1, 0.1f, 1}}},
      {"no range", 16, {}},
      {"all", 100, {{0, 100, 0, 1}}},
      {"gaps",
       200,
       {{3, 17, 0.1f, 1}, {17, 50, 0, 0.5f}, {64, 65, 0.2f, 2}, {90, 90}, {101, 190, 0.01f, 1}}},
      {"large", 70000, {{16, 33000, 1e-2f, 1}, {33008, 69999, 0, 0.1f}}},
      // A GPU's blocks share the array out in pieces of 8192 elements and read four at a time.
      {"pieces",
       25000,
       {{1, 2, 0.1f, 1}, {8190, 8195, 0.2f, 1}, {8195, 16384, 0, 1}, {16384, 24577, 0.1f, 2}}}};
}

StepState state_at(int64_t step) {
  StepState state;
  state.step = step;
  state.learning_rate = 0.05f;
  return state;
}

// What gradients are scaled by: a norm that they are clipped to, the loss scale (0: none), and the
// sum of squares that is held against them.
struct Scaling {
  float max_norm;
  float loss_scale;
  double squares;
};
const std::vector<Scaling>& scalings() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  static const std::vector<Scaling> all{{0, 0, 0},  {0.5f, 0, 9},      {2, 0, 1},
                                        {1, 0, 0},  {0, 8, 1},         {0.5f, 8, 1024},
                                        {2, 8, 64}, {0, 8, kInfinity}, {0.5f, 8, kNaN}};
  return all;
}

TestTensor squares(const Scaling& s) {
  return s.max_norm > 0 || s.loss_scale > 0 ? with(exact(DType::kF64, {1}), {s.squares}) : none();
}
TestTensor loss_scale(const Scaling& s, int64_t skipped) {
  return s.loss_scale > 0 ? bytes_of(LossScale{.scale = s.loss_scale, .skipped = skipped}) : none();
}

TestTensor low_precision(int64_t elements) {
  return with(low({elements}), std::vector<double>(static_cast<size_t>(elements), 0.375));
}

class UpdateTest : public OpsTest {};

TEST_P(UpdateTest, SumOfSquares) {
  for (const Arrays& a : arrays()) {
    check(
        {a.name, SumOfSquares{a.ranges}, {random(full({a.elements}), 1), exact(DType::kF64, {1})}});
  }
}

TEST_P(UpdateTest, SumOfSquaresTellsWhatIsNotFinite) {
  using O = SumOfSquares;
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (size_t at : {2, 4, 5}) {
      Case c{"not finite",
             O{{{0, 4, 0, 1}, {6, 9, 0, 1}}, {{4, 5, 0, 1}}},
             {random(full({9}), 1), exact(DType::kF64, {1})}};
      c.tensors[O::kX].values[at] = bad;
      const auto [specs, memory] = target_memory(c, std::vector(2, Layout::row_major()));
      const double sum = target_.unpack(specs[O::kSum], memory[O::kSum])[0];
      EXPECT_EQ(std::isfinite(sum), at == 5) << bad;
    }
  }
}

TEST_P(UpdateTest, Sgd) {
  for (const Arrays& a : arrays()) {
    for (const Scaling& s : scalings()) {
      for (const UpdateRule& rule :
           {UpdateRule(Sgd{}), UpdateRule(SgdMomentum{.momentum = 0.9f, .nesterov = false}),
            UpdateRule(SgdMomentum{.momentum = 0.9f, .nesterov = true})}) {
        for (bool copied : {false, true}) {
          Case c{
              .name = a.name,
              .op = Update{rule, a.ranges, s.max_norm},
              .tensors = {random(full({a.elements}), 1), random(full({a.elements}), 2), squares(s),
                          loss_scale(s, 0), state(), copied ? low_precision(a.elements) : none()},
              .state = state_at(3)};
          if (!slots_of(rule).empty()) c.tensors.push_back(random(full({a.elements}), 3));
          check(c);
        }
      }
    }
  }
}

TEST_P(UpdateTest, Adam) {
  for (const Arrays& a : arrays()) {
    for (const Scaling& s : scalings()) {
      for (bool decoupled : {false, true}) {
        for (int64_t step : {0, 1, 1000, 1000000}) {
          check({.name = a.name,
                 .op = Update{Adam{.beta1 = 0.8f, .decoupled = decoupled}, a.ranges, s.max_norm},
                 .tensors = {random(full({a.elements}), 1), random(full({a.elements}), 2),
                             squares(s), loss_scale(s, step / 2), state(),
                             step == 1 ? low_precision(a.elements) : none(),
                             random(full({a.elements}), 3), uniform(full({a.elements}), 4, 0, 2)},
                 .state = state_at(step)});
        }
      }
    }
  }
}

// The first step, from moments that are zero: everything hangs on the bias correction.
TEST_P(UpdateTest, AdamFromZero) {
  const std::vector<double> zeros(100, 0.0);
  check({.name = "from zero",
         .op = Update{Adam{}, {{0, 100, 0.1f, 1}}},
         .tensors = {random(full({100}), 1), random(full({100}), 2), none(), none(), state(),
                     none(), with(full({100}), zeros), with(full({100}), zeros)},
         .state = state_at(0)});
}

TEST_P(UpdateTest, ScaleLoss) {
  const LossScale scale{.scale = 1024, .good_steps = 3, .skipped = 5};
  const StepState state{.step = 9, .seed = 1, .valid_rows = 4, .loss_gradient_scale = 0.3f};
  check({.name = "scale",
         .op = ScaleLoss{},
         .tensors = {bytes_of(scale), bytes_of(state)},
         .slack = 0});
}

TEST_P(UpdateTest, AdjustLossScale) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double squares : {0.0, 1e300, kInfinity, -kInfinity, std::nan("")}) {
    for (const LossScale& scale :
         {LossScale{.scale = 8, .good_steps = 3}, LossScale{.scale = 8, .good_steps = 4},
          LossScale{.scale = 1 << 24, .good_steps = 4}, LossScale{.scale = 1, .skipped = 7}}) {
      check({.name = std::to_string(squares),
             .op = AdjustLossScale{.growth_steps = 5},
             .tensors = {with(exact(DType::kF64, {1}), {squares}), bytes_of(scale)},
             .slack = 0});
    }
  }
}

TRIREME_ON_ALL_TARGETS(UpdateTest);

}  // namespace
}  // namespace trireme::ops
