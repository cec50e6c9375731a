// Updates of the parameters against the reference. Arrays have gaps that no range covers; the
// harness demands that they stay as they were to the last bit.
#include <algorithm>

#include "ops/optimizer.h"
#include "tests/ops/harness.h"

namespace trireme {
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
      {"large", 70000, {{16, 33000, 1e-2f, 1}, {33008, 69999, 0, 0.1f}}}};
}

StepState state_at(int64_t step) {
  StepState state;
  state.step = step;
  state.learning_rate = 0.05f;
  return state;
}

// The sum of squares that gradients are clipped by: none, one that clips and one that does not.
struct Clip {
  float max_norm;
  double squares;
};
const std::vector<Clip>& clips() {
  static const std::vector<Clip> all{{0, 0}, {0.5f, 9}, {2, 1}, {1, 0}};
  return all;
}

TestTensor squares(const Clip& clip) {
  return clip.max_norm > 0 ? with(exact(DType::kF64, {1}), {clip.squares}) : none();
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

TEST_P(UpdateTest, Sgd) {
  for (const Arrays& a : arrays()) {
    for (const Clip& clip : clips()) {
      for (auto [momentum, nesterov] : {std::pair{0.0f, false}, {0.9f, false}, {0.9f, true}}) {
        for (bool copied : {false, true}) {
          SgdUpdate op;
          op.ranges = a.ranges;
          op.max_norm = clip.max_norm;
          op.momentum = momentum;
          op.nesterov = nesterov;
          check({.name = a.name,
                 .op = op,
                 .tensors = {random(full({a.elements}), 1), random(full({a.elements}), 2),
                             momentum > 0 ? random(full({a.elements}), 3) : none(), squares(clip),
                             state(), copied ? low_precision(a.elements) : none()},
                 .state = state_at(3)});
        }
      }
    }
  }
}

TEST_P(UpdateTest, Adam) {
  for (const Arrays& a : arrays()) {
    for (const Clip& clip : clips()) {
      for (bool decoupled : {false, true}) {
        for (int64_t step : {0, 1, 1000, 1000000}) {
          AdamUpdate op;
          op.ranges = a.ranges;
          op.max_norm = clip.max_norm;
          op.beta1 = 0.8f;
          op.decoupled = decoupled;
          check(
              {.name = a.name,
               .op = op,
               .tensors = {random(full({a.elements}), 1), random(full({a.elements}), 2),
                           random(full({a.elements}), 3), uniform(full({a.elements}), 4, 0, 2),
                           squares(clip), state(), step == 1 ? low_precision(a.elements) : none()},
               .state = state_at(step)});
        }
      }
    }
  }
}

// The first step, from moments that are zero: everything hangs on the bias correction.
TEST_P(UpdateTest, AdamFromZero) {
  const std::vector<double> zeros(100, 0.0);
  AdamUpdate op;
  op.ranges = {{0, 100, 0.1f, 1}};
  check({.name = "from zero",
         .op = op,
         .tensors = {random(full({100}), 1), random(full({100}), 2), with(full({100}), zeros),
                     with(full({100}), zeros), none(), state(), none()},
         .state = state_at(0)});
}

TRIREME_ON_ALL_TARGETS(UpdateTest);

}  // namespace
}  // namespace trireme
