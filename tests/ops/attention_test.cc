// Attention: the reference against PyTorch's numbers and against differences, each backend against
// the reference.
#include "ops/attention.h"

#include <cmath>

#include "tests/ops/differences.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  int64_t samples, length, dim;
  AttentionShape shape;
  std::vector<double> lengths = {};  // empty: all of `length`

  Shape qkv() const { return {samples, length, (shape.heads + 2 * shape.kv_heads) * dim}; }
  Shape y() const { return {samples, length, shape.heads * dim}; }
  Shape saved() const { return {samples, shape.heads, length}; }
};

// Lengths below, at and above a block of queries, and where the last block is not full.
std::vector<Problem> problems() {
  std::vector<Problem> all{
      {1, 1, 4, {1, 1, false, 0.5f}},         {2, 5, 8, {2, 2, false, 0.35f}},
      {2, 7, 4, {4, 2, false, 0.5f}, {3, 7}}, {3, 64, 16, {2, 1, false, 0.25f}, {64, 1, 0}},
      {1, 129, 16, {3, 3, false, 0.25f}},     {2, 70, 8, {4, 2, false, 0.4f}, {65, 70}},
      {1, 260, 4, {1, 1, false, 0.4f}},
  };
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) {
    all.push_back(all[i]);
    all.back().shape.causal = true;
  }
  return all;
}

TestTensor lengths_of(const Problem& p) {
  return p.lengths.empty() ? none() : with(exact(DType::kI32, {p.samples}), p.lengths);
}

std::string name_of(const Problem& p) {
  return p.qkv().to_string() + (p.shape.causal ? " causal" : "");
}

class AttentionTest : public OpsTest {};

TEST_P(AttentionTest, Forward) {
  for (const Problem& p : problems()) {
    for (bool training : {true, false}) {
      check({.name = name_of(p),
             .op = AttentionForward{p.shape},
             .tensors = {random(weight(p.qkv()), 1), lengths_of(p), weight(p.y()),
                         training ? full(p.saved()) : none()}});
    }
  }
}

TEST_P(AttentionTest, Backward) {
  using F = AttentionForward;
  for (const Problem& p : problems()) {
    const Case forward{
        .name = "forward",
        .op = F{p.shape},
        .tensors = {random(weight(p.qkv()), 1), lengths_of(p), weight(p.y()), full(p.saved())}};
    const auto results = reference_values(forward);
    check(
        {.name = name_of(p),
         .op = AttentionBackward{p.shape},
         .tensors = {random(weight(p.qkv()), 1), lengths_of(p), with(weight(p.y()), results[F::kY]),
                     with(full(p.saved()), results[F::kSaved]), random(weight(p.y()), 2),
                     weight(p.qkv())}});
  }
}

// Scores whose exponentials overflow.
TEST_P(AttentionTest, LargeScores) {
  const Problem p{1, 70, 8, {1, 1, true, 30.0f}};
  check({.name = "large scores",
         .op = AttentionForward{p.shape},
         .tensors = {uniform(weight(p.qkv()), 1, -2, 2), none(), weight(p.y()), full(p.saved())},
         .slack = 20});
}

TRIREME_ON_ALL_TARGETS(AttentionTest);

TEST(AttentionGradient, MatchesDifferences) {
  using F = AttentionForward;
  for (bool causal : {false, true}) {
    const Problem p{2, 4, 2, {4, 2, causal, 0.7f}};
    Tensor lengths = labels_of({3, 4});
    std::vector<Tensor> forward{random_numbers(p.qkv(), 1), lengths, unwritten(p.y()),
                                unwritten(p.saved())};
    evaluate(F{p.shape}, forward);
    Tensor dy = random_numbers(p.y(), 2), dqkv = unwritten(p.qkv());
    evaluate(AttentionBackward{p.shape},
             {&forward[F::kQkv], &lengths, &forward[F::kY], &forward[F::kSaved], &dy, &dqkv});
    EXPECT_LT(relative_error(dqkv, differences(F{p.shape}, forward, F::kQkv, F::kY, dy)), 1e-7);
  }
}

}  // namespace
}  // namespace trireme::ops
