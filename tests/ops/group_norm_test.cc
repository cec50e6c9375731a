// Group normalization: the reference against PyTorch and finite differences, each backend against
// the reference.
#include "ops/group_norm.h"

#include "core/error.h"
#include "tests/ops/differences.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

using F = GroupNormForward;
using B = GroupNormBackward;

// --- Reference ---

Tensor pattern(const Shape& shape, int64_t factor, int64_t period, double unit) {
  Tensor tensor = filled(shape, 0);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor[i] = static_cast<double>(i * factor % period - period / 2) / unit;
  }
  return tensor;
}

Tensor all_valid(const Shape& x) { return state_of({.valid_rows = static_cast<int32_t>(x[0])}); }

void expect_numbers(const Tensor& got, const std::vector<double>& wanted) {
  EXPECT_LT(relative_error(got.numbers(), wanted), 1e-11);
}

// torch.nn.GroupNorm(2, 4, eps=2**-10) of PyTorch 2.15 in double precision.
TEST(GroupNorm, MatchesPyTorch) {
  const Shape shape{2, 4, 1, 3};
  std::vector<Tensor> forward{pattern(shape, 7, 11, 4), numbers({4}, {1, -0.5, 2, 0.25}),
                              numbers({4}, {0, 1, -1, 0.5}), unwritten(shape),
                              unwritten({2, 2, 2})};
  evaluate(F{.groups = 2, .epsilon = 0x1p-10f}, forward);
  expect_numbers(
      forward[F::kY],
      {-1.392083286005, 0.696041643002, -0.497172602145, 0.204523836569,  0.801130959142,
       1.397738081716,  1.721992376262, -0.697556402638, -3.117105181537, 0.764638147692,
       0.46219455033,   0.159750952967, 0.286035526388,  -1.086935000276, 1.315763421387,
       1.028603552639,  1.715088815971, 0.51373960514,   -0.427928947223, -3.173870000552,
       1.631526842774,  0.485698223681, 0.142455592014,  0.74313019743});
  std::vector<Tensor> backward{forward[F::kX],     pattern(shape, 5, 7, 2), forward[F::kGamma],
                               forward[F::kSaved], all_valid(shape),        unwritten(shape),
                               unwritten({4}),     unwritten({4})};
  evaluate(B{.groups = 2}, backward);
  expect_numbers(
      backward[B::kDx],
      {-0.627483591917, 0.910348918532,  0.542965017624,  -0.305630962221, -0.971318424415,
       0.451119042397,  0.376901781706,  -3.116977374485, 1.857564195473,  1.318093576833,
       -0.058680397821, -0.376901781706, 1.080277024636,  -0.53532932429,  -1.483687161996,
       -0.353352457594, 0.090496983477,  1.201594935767,  3.584126360918,  0.247322147822,
       -1.464608375914, -1.197364956516, -0.930121537118, -0.239353639192});
  expect_numbers(backward[B::kDgamma],
                 {1.497006703262, -2.421811181003, -2.738179304104, -3.234639457541});
  expect_numbers(backward[B::kDbeta], {-2, 1, 0.5, 0});
}

TEST(GroupNorm, OneGroupOfFeaturesIsLayerNorm) {
  Tensor x = random_numbers({3, 8}, 1), gamma = random_numbers({8}, 2);
  Tensor beta = random_numbers({8}, 3), dy = random_numbers({3, 8}, 4), valid = all_valid({3, 8});
  Tensor y = unwritten({3, 8}), of_layer = y, saved = unwritten({3, 1, 2});
  Tensor of_row = unwritten({3, 2});
  evaluate(F{.groups = 1}, {&x, &gamma, &beta, &y, &saved});
  evaluate(LayerNormForward{}, {&x, &gamma, &beta, &of_layer, &of_row});
  expect_numbers(y, of_layer.numbers());
  expect_numbers(saved, of_row.numbers());
  Tensor dx = unwritten({3, 8}), dgamma = unwritten({8}), dbeta = unwritten({8});
  Tensor layer_dx = dx, layer_dgamma = dgamma, layer_dbeta = dbeta;
  evaluate(B{.groups = 1}, {&x, &dy, &gamma, &saved, &valid, &dx, &dgamma, &dbeta});
  evaluate(LayerNormBackward{}, {&x, &dy, &gamma, &of_row, &layer_dx, &layer_dgamma, &layer_dbeta});
  expect_numbers(dx, layer_dx.numbers());
  expect_numbers(dgamma, layer_dgamma.numbers());
  expect_numbers(dbeta, layer_dbeta.numbers());
}

TEST(GroupNorm, OneGroupPerChannelIsInstanceNorm) {
  // For one sample it equals batch norm.
  const Shape shape{1, 3, 5};
  Tensor x = random_numbers(shape, 1), gamma = random_numbers({3}, 2),
         beta = random_numbers({3}, 3);
  Tensor y = unwritten(shape), of_batch = y, saved = unwritten({1, 3, 2}), none;
  Tensor batch_saved = unwritten({6}), valid = all_valid(shape);
  evaluate(F{.groups = 3}, {&x, &gamma, &beta, &y, &saved});
  evaluate(BatchNormForward{},
           {&x, &none, &gamma, &beta, &none, &valid, &none, &none, &of_batch, &batch_saved});
  expect_numbers(y, of_batch.numbers());
}

TEST(GroupNorm, GradientsMatchFiniteDifferences) {
  for (const auto& [shape, groups] : {std::pair{Shape{2, 6}, 2},
                                      {Shape{2, 4, 3}, 2},
                                      {Shape{3, 4, 2, 3}, 4},
                                      {Shape{2, 3, 2, 2}, 1}}) {
    SCOPED_TRACE(shape.to_string());
    const Shape c{shape[1]};
    const Op op = F{.groups = groups, .epsilon = 1e-3f};
    std::vector<Tensor> forward{random_numbers(shape, 1), random_numbers(c, 2),
                                random_numbers(c, 3), unwritten(shape),
                                unwritten({shape[0], groups, 2})};
    const Tensor dy = random_numbers(shape, 4);
    evaluate(op, forward);
    std::vector<Tensor> backward{
        forward[F::kX],   dy,           forward[F::kGamma], forward[F::kSaved], all_valid(shape),
        unwritten(shape), unwritten(c), unwritten(c)};
    evaluate(B{.groups = groups}, backward);
    for (const auto& [gradient, input] :
         {std::pair{B::kDx, F::kX}, {B::kDgamma, F::kGamma}, {B::kDbeta, F::kBeta}}) {
      EXPECT_LT(relative_error(backward[gradient], differences(op, forward, input, F::kY, dy)),
                1e-7);
    }
  }
}

TEST(GroupNorm, RejectsInvalidShapes) {
  const auto of = [](const Shape& shape) {
    return TensorSpec{DType::kF32, shape, Layout::row_major()};
  };
  const auto refusal = [](const Op& op, const std::vector<TensorSpec>& specs) -> std::string {
    try {
      check_shapes(op, specs);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const TensorSpec x = of({2, 6, 3}), c = of({6}), saved = of({2, 3, 2}), none = absent();
  EXPECT_EQ(refusal(F{.groups = 3}, {x, c, c, x, saved}), "accepted");
  EXPECT_EQ(refusal(F{.groups = 3}, {x, none, none, x, none}), "accepted");
  EXPECT_EQ(refusal(F{.groups = 4}, {x, c, c, x, saved}),
            "group_norm_forward: the 6 channels of x [2, 6, 3] are not divisible into 4 groups");
  EXPECT_EQ(refusal(F{.groups = 0}, {x, c, c, x, saved}),
            "group_norm_forward: groups must be at least 1, got 0");
  EXPECT_EQ(refusal(F{.groups = 3}, {of({6}), c, c, of({6}), saved}),
            "group_norm_forward: x must be [N, C, ...], got [6]");
  EXPECT_EQ(refusal(F{.groups = 3}, {of({2, 6, 0}), c, c, of({2, 6, 0}), saved}),
            "group_norm_forward: the dimensions of x must be at least 1, got 0");
  EXPECT_EQ(refusal(F{.groups = 3}, {x, c, none, x, saved}),
            "group_norm_forward: gamma is present without beta");
  EXPECT_EQ(refusal(F{.groups = 3}, {x, c, of({3}), x, saved}),
            "group_norm_forward: beta must be [6], got [3]");
  EXPECT_EQ(refusal(F{.groups = 3}, {x, c, c, x, of({2, 6, 2})}),
            "group_norm_forward: saved must be [2, 3, 2], got [2, 6, 2]");
  EXPECT_EQ(refusal(B{.groups = 3}, {x, x, c, saved, of({1}), x, none, c}),
            "group_norm_backward: dbeta is present without dgamma");
}

// --- Backends ---

struct Problem {
  Shape x;
  int64_t groups;
  int32_t valid_rows;
};

// Groups smaller than, equal to and larger than a vector of 8 or 16 channels, and across its
// boundary.
std::vector<Problem> problems() {
  return {{{2, 1, 4, 4}, 1, 2},   {{3, 6, 7, 5}, 1, 3},  {{3, 6, 5, 5}, 3, 2},
          {{2, 6, 5, 5}, 6, 1},   {{2, 16, 8, 8}, 4, 2}, {{3, 24, 5, 7}, 3, 3},
          {{2, 32, 7, 7}, 2, 2},  {{2, 48, 3, 5}, 2, 1}, {{2, 48, 5, 5}, 1, 2},
          {{3, 40, 4, 3}, 8, 3},  {{2, 72, 3, 3}, 3, 2}, {{4, 17, 3, 3}, 17, 2},
          {{5, 18, 1, 1}, 3, 4},  {{2, 20, 1, 1}, 5, 2}, {{2, 16, 5, 5}, 4, 0},
          {{70, 4, 2, 3}, 2, 69}, {{5, 32}, 4, 4},       {{5, 33}, 3, 5},
          {{3, 300}, 2, 3},       {{2, 12, 9}, 4, 2},    {{2, 6, 3, 2, 5}, 2, 1}};
}

// Large enough that the blocks of a GPU share positions, channels and samples.
std::vector<Problem> large_problems() {
  return {
      {{3, 24, 61, 67}, 3, 2}, {{2, 5, 67, 61}, 5, 2}, {{9, 2056}, 8, 8}, {{3, 264, 3, 2}, 2, 3}};
}

std::string name_of(const Problem& p) {
  return p.x.to_string() + " in " + std::to_string(p.groups);
}

StepState valid(const Problem& p) {
  StepState state;
  state.valid_rows = p.valid_rows;
  return state;
}

TestTensor values(const Problem& p) {
  TestTensor x = random(image(p.x), 1);
  for (double& value : x.values) value = 1.5 * value + 2;
  return x;
}

TestTensor saved(const Problem& p) { return full({p.x[0], p.groups, 2}); }

Case forward(const Problem& p, bool affine, bool training) {
  const Shape c{p.x[1]};
  return {
      .name = name_of(p) + (affine ? "" : ", not affine") + (training ? "" : ", inference"),
      .op = F{.groups = p.groups, .epsilon = 1e-3f},
      .tensors = {values(p), affine ? uniform(full(c), 2, -1, 2) : none(),
                  affine ? random(full(c), 3) : none(), image(p.x), training ? saved(p) : none()}};
}

class GroupNormTest : public OpsTest {
 protected:
  Case backward(const Problem& p, bool affine) {
    const Shape c{p.x[1]};
    const auto found = reference_values(forward(p, affine, true))[F::kSaved];
    return {.name = name_of(p) + (affine ? "" : ", not affine"),
            .op = B{.groups = p.groups},
            .tensors = {values(p), random(image(p.x), 4),
                        affine ? uniform(full(c), 2, -1, 2) : none(), with(saved(p), found),
                        state(), image(p.x), affine ? full(c) : none(), affine ? full(c) : none()},
            .state = valid(p)};
  }
};

TEST_P(GroupNormTest, Forward) {
  for (const Problem& p : problems()) {
    for (bool affine : {true, false}) {
      check(forward(p, affine, true));
      check(forward(p, affine, false));
    }
  }
}

TEST_P(GroupNormTest, Backward) {
  for (const Problem& p : problems()) {
    for (bool affine : {true, false}) check(backward(p, affine));
  }
}

TEST_P(GroupNormTest, LargeTensors) {
  for (const Problem& p : large_problems()) {
    const Case there = forward(p, true, true), back = backward(p, true);
    check(there, std::vector<Layout>(there.tensors.size(), Layout::any()));
    check(back, std::vector<Layout>(back.tensors.size(), Layout::any()));
  }
}

// Rows beyond the valid ones may contain anything.
TEST_P(GroupNormTest, IgnoresPaddingRows) {
  for (const Shape& x : {Shape{3, 8, 3, 3}, Shape{3, 8}}) {
    const Problem p{x, 2, 2};
    Case c = backward(p, true);
    const auto third = static_cast<size_t>(x.elements() / 3);
    for (int arg : {B::kX, B::kDy}) {
      auto& numbers = c.tensors[static_cast<size_t>(arg)].values;
      std::fill(numbers.end() - static_cast<std::ptrdiff_t>(third), numbers.end(),
                std::numeric_limits<double>::quiet_NaN());
    }
    check(c);
  }
}

// A mean that is large compared to the standard deviation must not cause large rounding errors.
TEST_P(GroupNormTest, FarFromZero) {
  for (const Shape& x : {Shape{3, 16, 8, 8}, Shape{3, 320}}) {
    Case c = forward({x, 4, 3}, true, true);
    c.slack = 10;
    for (double& value : c.tensors[F::kX].values) value += 1000;
    check(c);
  }
}

// Sums over samples have an order that does not depend on the number of threads.
TEST_P(GroupNormTest, IsIndependentOfThreads) {
  if (GetParam().name.starts_with("cuda")) GTEST_SKIP() << "has no such threads";
  Bench threads(GetParam().device(3), GetParam().backend);
  for (const Problem& p : problems()) {
    for (const Case& c : {forward(p, true, true), backward(p, true)}) {
      SCOPED_TRACE(c.name);
      const std::vector<Layout> layouts(c.tensors.size(), Layout::row_major());
      const auto [specs, memory] = target_memory(c, layouts);
      const auto plan = threads.backend().plan(c.op, specs_of(c, layouts));
      EXPECT_TRUE(threads.run(c.op, *plan, memory_before(threads, c, plan->specs())) == memory);
    }
  }
}

TRIREME_ON_ALL_TARGETS(GroupNormTest);

}  // namespace
}  // namespace trireme::ops
