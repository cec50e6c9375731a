// Class tokens, pooling of tokens and segments: the reference against differences and definitions,
// each backend against the reference.
#include <fmt/format.h>

#include "ops/class_token.h"
#include "ops/key_ranges.h"
#include "ops/pool_tokens.h"
#include "tests/ops/differences.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

// [B, T, C]
const std::vector<Shape>& sequences() {
  static const std::vector<Shape> all{{1, 1, 1},  {2, 3, 5},  {3, 4, 16},
                                      {2, 9, 17}, {40, 5, 8}, {1, 5, 1032}};
  return all;
}

class EncoderTest : public OpsTest {};

TEST_P(EncoderTest, ClassTokenForward) {
  for (const Shape& x : sequences()) {
    const Shape whole{x[0], x[1] + 1, x[2]};
    for (bool positions : {true, false}) {
      check({.name = x.to_string(),
             .op = ClassTokenForward{},
             .tensors = {random(weight(x), 1), random(weight({x[2]}), 2),
                         positions ? random(weight({x[1] + 1, x[2]}), 3) : none(), weight(whole)}});
    }
  }
}

TEST_P(EncoderTest, ClassTokenBackward) {
  for (const Shape& x : sequences()) {
    const Shape whole{x[0], x[1] + 1, x[2]};
    for (bool all : {true, false}) {
      check({.name = x.to_string(),
             .op = ClassTokenBackward{},
             .tensors = {random(weight(whole), 1), all ? weight(x) : none(), full({x[2]}),
                         all ? full({x[1] + 1, x[2]}) : none()}});
    }
  }
}

// The first sequence has no tokens.
TestTensor lengths_of(const Shape& x) {
  TestTensor lengths = exact(DType::kI32, {x[0]});
  for (int64_t i = 0; i < x[0]; ++i) {
    lengths.values.push_back(static_cast<double>(i * 3 % (x[1] + 1)));
  }
  return lengths;
}

TEST_P(EncoderTest, PoolTokens) {
  for (const Shape& x : sequences()) {
    for (const TokenRange range : {TokenRange{0, 1}, {0, 0}, {x[1] - 1, 0}, {x[1] / 2, 2}}) {
      for (bool lengths : {true, false}) {
        const std::string name = fmt::format("{} {} {}", x.to_string(), range.first, range.count);
        const auto of_x = lengths ? lengths_of(x) : none();
        check({.name = name,
               .op = PoolTokensForward{range},
               .tensors = {random(weight(x), 1), of_x, weight({x[0], x[2]})}});
        check({.name = name,
               .op = PoolTokensBackward{range},
               .tensors = {random(weight({x[0], x[2]}), 1), of_x, weight(x)}});
      }
    }
  }
}

TEST_P(EncoderTest, SegmentIds) {
  for (int64_t length : {1, 7, 32, 100}) {
    TestTensor tokens = exact(DType::kI32, {3, length});
    for (int64_t i = 0; i < 3 * length; ++i) {
      tokens.values.push_back(static_cast<double>((i * i + i / 5) % 6));
    }
    for (const SegmentIds op : {SegmentIds{}, {5, 2}, {0, 3}, {4, 1000}}) {
      check({.name = fmt::format("{} {}", length, op.end),
             .op = op,
             .tensors = {tokens, exact(DType::kI32, {3, length})}});
    }
  }
}

TRIREME_ON_ALL_TARGETS(EncoderTest);

TEST(ClassToken, IsThereBeforeThePatches) {
  std::vector<Tensor> tensors{numbers({2, 1, 2}, {1, 2, 3, 4}), numbers({2}, {10, 20}),
                              numbers({2, 2}, {0.5, 0.25, 100, 200}), unwritten({2, 2, 2})};
  evaluate(ClassTokenForward{}, tensors);
  EXPECT_EQ(tensors[3].numbers(),
            (std::vector<double>{10.5, 20.25, 101, 202, 10.5, 20.25, 103, 204}));
}

TEST(ClassToken, GradientMatchesDifferences) {
  using F = ClassTokenForward;
  std::vector<Tensor> forward{random_numbers({3, 4, 5}, 1), random_numbers({5}, 2),
                              random_numbers({5, 5}, 3), unwritten({3, 5, 5})};
  Tensor dy = random_numbers({3, 5, 5}, 4), dx = unwritten({3, 4, 5}), dtoken = unwritten({5}),
         dpositions = unwritten({5, 5});
  evaluate(ClassTokenBackward{}, {&dy, &dx, &dtoken, &dpositions});
  EXPECT_LT(relative_error(dx, differences(F{}, forward, F::kX, F::kY, dy)), 1e-7);
  EXPECT_LT(relative_error(dtoken, differences(F{}, forward, F::kToken, F::kY, dy)), 1e-7);
  EXPECT_LT(relative_error(dpositions, differences(F{}, forward, F::kPositions, F::kY, dy)), 1e-7);
}

TEST(PoolTokens, AveragesTheTokensOfTheRange) {
  const Tensor x = numbers({2, 3, 1}, {1, 2, 6, 10, 20, 30});
  const auto pooled = [&](TokenRange range, const std::vector<int32_t>& lengths) {
    std::vector<Tensor> tensors{x, labels_of(lengths), unwritten({2, 1})};
    evaluate(PoolTokensForward{range}, tensors);
    return tensors[2].numbers();
  };
  EXPECT_EQ(pooled({0, 0}, {3, 2}), (std::vector<double>{3, 15}));
  EXPECT_EQ(pooled({0, 1}, {3, 2}), (std::vector<double>{1, 10}));
  EXPECT_EQ(pooled({1, 0}, {3, 1}), (std::vector<double>{4, 0}));
  EXPECT_EQ(pooled({1, 1}, {3, 0}), (std::vector<double>{2, 0}));
}

TEST(PoolTokens, GradientMatchesDifferences) {
  using F = PoolTokensForward;
  for (const TokenRange range : {TokenRange{0, 1}, {0, 0}, {1, 2}}) {
    std::vector<Tensor> forward{random_numbers({3, 4, 5}, 1), labels_of({4, 0, 2}),
                                unwritten({3, 5})};
    Tensor dy = random_numbers({3, 5}, 2), dx = unwritten({3, 4, 5});
    evaluate(PoolTokensBackward{range}, {&dy, &forward[F::kLengths], &dx});
    EXPECT_LT(relative_error(dx, differences(F{range}, forward, F::kX, F::kY, dy)), 1e-7);
  }
}

TEST(SegmentIds, CountsTheEndsBefore) {
  std::vector<Tensor> tensors{stored<int32_t>(DType::kI32, {2, 4}, {7, 9, 7, 9, 9, 9, 9, 7}),
                              stored<int32_t>(DType::kI32, {2, 4}, std::vector<int32_t>(8, -1))};
  evaluate(SegmentIds{9, 3}, tensors);
  const auto* ids = tensors[1].as<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(ids, ids + 8), (std::vector<int32_t>{0, 0, 1, 1, 0, 1, 2, 2}));
}

}  // namespace
}  // namespace trireme::ops
