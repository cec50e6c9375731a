// Batch normalization against the reference.
#include "ops/batch_norm.h"

#include <cmath>

#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  std::string name;
  Shape x;
  int32_t valid_rows;
};

std::vector<Problem> problems() {
  return {{"one channel", {2, 1, 8, 8}, 2},
          {"three channels", {5, 3, 7, 5}, 5},
          {"six channels, some rows", {5, 6, 5, 5}, 3},
          {"a block", {2, 16, 8, 8}, 2},
          {"a block and one", {2, 17, 7, 7}, 1},
          {"two blocks", {5, 32, 8, 7}, 4},
          {"four blocks", {1, 64, 5, 5}, 1},
          {"one place each", {5, 17, 1, 1}, 5},
          {"one value a channel", {1, 6, 1, 1}, 1},
          {"no row", {2, 16, 5, 5}, 0},
          {"features", {5, 33}, 4},
          {"sequences", {2, 17, 9}, 2},
          {"volumes", {2, 6, 3, 2, 5}, 1}};
}

// Large enough that the blocks of a GPU share the rows or channels and process several chunks each.
std::vector<Problem> large_problems() {
  return {{"many places", {3, 24, 61, 67}, 2},
          {"many places of odd channels", {2, 5, 67, 61}, 2},
          {"many channels", {9, 2056}, 8},
          {"many odd channels", {3, 263, 3, 2}, 3}};
}

struct Options {
  bool relu = false, residual = false, sums = false, running = true;
};

std::vector<Options> options() {
  std::vector<Options> all;
  for (bool relu : {false, true})
    for (bool residual : {false, true})
      for (bool sums : {false, true}) all.push_back({relu, residual, sums, !sums || relu});
  return all;
}

std::string name_of(const Problem& p, const Options& o) {
  return p.name + (o.relu ? ", ReLU" : "") + (o.residual ? ", residual" : "") +
         (o.sums ? ", sums given" : "") + (o.running ? "" : ", nothing running");
}

StepState valid(const Problem& p) {
  StepState state;
  state.valid_rows = p.valid_rows;
  return state;
}

// Statistics of a larger batch, of which x is the share of one rank.
std::vector<double> sums_of_all(const Problem& p) {
  const auto channels = static_cast<size_t>(p.x[1]);
  std::vector<double> sums(2 * channels + 1);
  const double count = 3.0 * static_cast<double>(p.x.elements() / p.x[1]);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = 0.1 * static_cast<double>(c % 7) - 0.3;
    sums[c] = mean * count;
    sums[channels + c] = (mean * mean + 0.5 + 0.1 * static_cast<double>(c % 3)) * count;
  }
  sums[2 * channels] = count;
  return sums;
}

// Away from zero, where the variance may be lost in x^2.
TestTensor values(const Problem& p) {
  TestTensor x = random(image(p.x), 1);
  for (double& value : x.values) value = 1.5 * value + 2;
  return x;
}

TestTensor sums(const Problem& p) { return exact(DType::kF64, {2 * p.x[1] + 1}); }

Case forward(const Problem& p, const Options& o) {
  const Shape channels{p.x[1]};
  return {.name = name_of(p, o),
          .op = BatchNormForward{.epsilon = 1e-3f, .momentum = 0.3f, .relu = o.relu},
          .tensors = {values(p), o.residual ? random(image(p.x), 2) : none(),
                      uniform(full(channels), 3, -1, 2), random(full(channels), 4),
                      o.sums ? with(sums(p), sums_of_all(p)) : none(), state(),
                      o.running ? random(full(channels), 5) : none(),
                      o.running ? uniform(full(channels), 6, 0.5, 2) : none(), image(p.x),
                      full({2 * p.x[1]})},
          .state = valid(p)};
}

// y and the saved statistics, as the forward op computes them in double precision.
struct Forward {
  TestTensor y, saved;
};

class BatchNormTest : public OpsTest {
 protected:
  Forward run_forward(const Problem& p, const Options& o) {
    auto results = reference_values(forward(p, o));
    return {with(image(p.x), results[BatchNormForward::kY]),
            with(full({2 * p.x[1]}), results[BatchNormForward::kSaved])};
  }

  Case backward(const Problem& p, const Options& o) {
    const Forward f = run_forward(p, o);
    const Shape channels{p.x[1]};
    TestTensor given = random(sums(p), 8);
    given.values.back() = 3.0 * static_cast<double>(p.x.elements() / p.x[1]);
    return {
        .name = name_of(p, o),
        .op = BatchNormBackward{.relu = o.relu},
        .tensors = {values(p), o.relu ? f.y : none(), random(image(p.x), 7),
                    uniform(full(channels), 3, -1, 2), f.saved, o.sums ? given : none(), state(),
                    image(p.x), o.residual ? image(p.x) : none(), full(channels), full(channels)},
        .state = valid(p)};
  }
};

TEST_P(BatchNormTest, Statistics) {
  for (const Problem& p : problems()) {
    check({.name = p.name,
           .op = BatchNormStatistics{},
           .tensors = {values(p), state(), sums(p)},
           .state = valid(p)});
  }
}

TEST_P(BatchNormTest, Forward) {
  for (const Problem& p : problems()) {
    for (const Options& o : options()) check(forward(p, o));
  }
}

TEST_P(BatchNormTest, Inference) {
  for (const Problem& p : problems()) {
    for (const Options& o : options()) {
      if (o.sums) continue;
      const Shape channels{p.x[1]};
      check(
          {.name = name_of(p, o),
           .op = BatchNormInference{.epsilon = 1e-3f, .relu = o.relu},
           .tensors = {values(p), o.residual ? random(image(p.x), 2) : none(),
                       uniform(full(channels), 3, -1, 2), random(full(channels), 4),
                       random(full(channels), 5), uniform(full(channels), 6, 0.5, 2), image(p.x)}});
    }
  }
}

// Propagates dy through statistics that are constants.
TEST_P(BatchNormTest, InferenceWithoutMeanAndBeta) {
  for (const Problem& p : problems()) {
    const Shape channels{p.x[1]};
    check({.name = p.name,
           .op = BatchNormInference{.epsilon = 1e-3f},
           .tensors = {values(p), none(), uniform(full(channels), 3, -1, 2), none(), none(),
                       uniform(full(channels), 6, 0.5, 2), image(p.x)}});
  }
}

TEST_P(BatchNormTest, BackwardSums) {
  for (const Problem& p : problems()) {
    for (bool relu : {false, true}) {
      const Forward f = run_forward(p, {.relu = relu});
      check({.name = name_of(p, {.relu = relu}),
             .op = BatchNormBackwardSums{.relu = relu},
             .tensors = {values(p), relu ? f.y : none(), random(image(p.x), 7), f.saved, state(),
                         sums(p)},
             .state = valid(p)});
    }
  }
}

TEST_P(BatchNormTest, Backward) {
  for (const Problem& p : problems()) {
    for (const Options& o : options()) check(backward(p, o));
  }
}

TEST_P(BatchNormTest, LargeTensors) {
  for (const Problem& p : large_problems()) {
    const std::vector<Layout> layouts(BatchNormBackward::kArgs, Layout::any());
    for (bool residual : {false, true}) {
      const Options o{.relu = true, .residual = residual};
      const auto asked = [&](const Case& c) {
        check(c, {layouts.begin(), layouts.begin() + static_cast<ptrdiff_t>(c.tensors.size())});
      };
      asked(forward(p, o));
      asked(backward(p, o));
    }
  }
}

// A mean that is large compared to the standard deviation must not cause large rounding errors.
TEST_P(BatchNormTest, FarFromZero) {
  const Problem p{"far from zero", {5, 16, 8, 8}, 5};
  for (double mean : {100.0, 1000.0}) {
    Case c = forward(p, {.relu = false});
    c.slack = 10;  // the mean itself is rounded to a 20000th of the standard deviation
    for (double& value : c.tensors[BatchNormForward::kX].values) value += mean;
    check(c);
  }
}

TRIREME_ON_ALL_TARGETS(BatchNormTest);

}  // namespace
}  // namespace trireme::ops
