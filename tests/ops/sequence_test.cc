// Embeddings, rotary position embeddings and SwiGLU: the reference against differences and
// definitions, each backend against the reference.
#include <cmath>

#include "ops/embedding.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"
#include "tests/ops/differences.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct EmbeddingProblem {
  int64_t samples, length, width, vocabulary;
  int64_t rows() const { return samples * length; }
};

const std::vector<EmbeddingProblem>& embedding_problems() {
  static const std::vector<EmbeddingProblem> all{{1, 1, 1, 1},    {2, 3, 5, 7},    {3, 4, 16, 2},
                                                 {2, 8, 17, 300}, {4, 100, 24, 9}, {1, 5, 1032, 65},
                                                 {5, 1000, 4, 60}};
  return all;
}

// Some tokens come often, some never.
TestTensor tokens(const EmbeddingProblem& p) {
  TestTensor tensor = exact(DType::kI32, {p.rows()});
  for (int64_t r = 0; r < p.rows(); ++r) {
    tensor.values.push_back(static_cast<double>(r % 3 == 0 ? 0 : (r * r + 5) % p.vocabulary));
  }
  return tensor;
}

class EmbeddingTest : public OpsTest {};

TEST_P(EmbeddingTest, Forward) {
  for (const EmbeddingProblem& p : embedding_problems()) {
    for (bool positions : {true, false}) {
      check({.name = positions ? "with positions" : "without positions",
             .op = EmbeddingForward{},
             .tensors = {tokens(p), random(weight({p.vocabulary, p.width}), 1),
                         positions ? random(weight({p.length, p.width}), 2) : none(), none(),
                         weight({p.rows(), p.width})}});
    }
  }
}

// The last part ends beyond the positions.
TestTensor starts_of(int64_t samples, int64_t part, int64_t length) {
  TestTensor starts = exact(DType::kI32, {samples});
  for (int64_t i = 0; i < samples; ++i) {
    starts.values.push_back(static_cast<double>(i == 0 ? length - part + 1 : i % length));
  }
  return starts;
}

TEST_P(EmbeddingTest, ForwardOfParts) {
  constexpr int64_t kLength = 9;
  for (const EmbeddingProblem& p : embedding_problems()) {
    if (p.length > kLength) continue;
    check({.name = "parts",
           .op = EmbeddingForward{},
           .tensors = {tokens(p), random(weight({p.vocabulary, p.width}), 1),
                       random(weight({kLength, p.width}), 2),
                       starts_of(p.samples, p.length, kLength), weight({p.rows(), p.width})}});
  }
}

TEST_P(EmbeddingTest, Backward) {
  for (const EmbeddingProblem& p : embedding_problems()) {
    for (bool positions : {true, false}) {
      for (bool tied : {true, false}) {
        const Shape table{p.vocabulary, p.width};
        check({.name = tied ? "tied" : "alone",
               .op = EmbeddingBackward{},
               .tensors = {tokens(p), random(weight({p.rows(), p.width}), 1),
                           tied ? random(full(table), 2) : none(), full(table),
                           positions ? full({p.length, p.width}) : none()}});
      }
    }
  }
}

// Sequences that are shorter than there are positions.
TEST_P(EmbeddingTest, ShorterSequences) {
  for (const EmbeddingProblem& p : embedding_problems()) {
    const Shape table{p.vocabulary, p.width}, positions{2 * p.length + 1, p.width};
    check({.name = "forward",
           .op = EmbeddingForward{p.length},
           .tensors = {tokens(p), random(weight(table), 1), random(weight(positions), 2), none(),
                       weight({p.rows(), p.width})}});
    check({.name = "backward",
           .op = EmbeddingBackward{p.length},
           .tensors = {tokens(p), random(weight({p.rows(), p.width}), 1), none(), full(table),
                       full(positions)}});
  }
}

TRIREME_ON_ALL_TARGETS(EmbeddingTest);

TEST(EmbeddingGradient, MatchesDifferences) {
  using F = EmbeddingForward;
  Tensor tokens = labels_of({3, 0, 3, 1, 3, 0});
  std::vector<Tensor> forward{tokens, random_numbers({4, 5}, 1), random_numbers({3, 5}, 2),
                              Tensor(), unwritten({6, 5})};
  Tensor dy = random_numbers({6, 5}, 3), addend, dtable = unwritten({4, 5}),
         dpositions = unwritten({3, 5});
  evaluate(EmbeddingBackward{}, {&tokens, &dy, &addend, &dtable, &dpositions});
  EXPECT_LT(relative_error(dtable, differences(F{}, forward, F::kTable, F::kY, dy)), 1e-7);
  EXPECT_LT(relative_error(dpositions, differences(F{}, forward, F::kPositions, F::kY, dy)), 1e-7);
}

TEST(EmbeddingGradient, OfShorterSequencesMatchesDifferences) {
  using F = EmbeddingForward;
  Tensor tokens = labels_of({3, 0, 3, 1, 3, 0});
  std::vector<Tensor> forward{tokens, random_numbers({4, 5}, 1), random_numbers({4, 5}, 2),
                              Tensor(), unwritten({6, 5})};
  Tensor dy = random_numbers({6, 5}, 3), addend, dtable = unwritten({4, 5}),
         dpositions = unwritten({4, 5});
  evaluate(EmbeddingBackward{3}, {&tokens, &dy, &addend, &dtable, &dpositions});
  EXPECT_LT(relative_error(dpositions, differences(F{3}, forward, F::kPositions, F::kY, dy)), 1e-7);
}

struct RotaryProblem {
  int64_t samples, columns;
  Rotary op;
};

const std::vector<RotaryProblem>& rotary_problems() {
  static const std::vector<RotaryProblem> all{
      {1, 2, {.length = 1, .heads = 1, .head_dim = 2}},
      {2, 19, {.length = 5, .heads = 3, .head_dim = 6}},
      {3, 48, {.length = 7, .heads = 2, .head_dim = 16}},
      {1, 384, {.length = 600, .heads = 4, .head_dim = 64, .base = 500}},
  };
  return all;
}

class RotaryTest : public OpsTest {};

TEST_P(RotaryTest, RotatesForwardAndBack) {
  for (const RotaryProblem& p : rotary_problems()) {
    for (bool inverse : {false, true}) {
      Rotary op = p.op;
      op.inverse = inverse;
      const Shape x{p.samples * op.length, p.columns};
      check(
          {.name = x.to_string(), .op = op, .tensors = {random(weight(x), 1), none(), weight(x)}});
    }
  }
}

TEST_P(RotaryTest, RotatesParts) {
  for (const RotaryProblem& p : rotary_problems()) {
    const int64_t part = (p.op.length + 1) / 2;
    const Shape x{p.samples * part, p.columns};
    check({.name = x.to_string(),
           .op = p.op,
           .tensors = {random(weight(x), 1), starts_of(p.samples, part, p.op.length), weight(x)}});
  }
}

TRIREME_ON_ALL_TARGETS(RotaryTest);

// Position 2 of a head of 4: the pairs (0, 2) and (1, 3) turn by 2 and by 2 / 100^(1/2).
TEST(Rotary, TurnsPairsByTheirAngles) {
  std::vector<Tensor> tensors{numbers({3, 5}, {1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5}),
                              Tensor(), unwritten({3, 5})};
  evaluate(Rotary{.length = 3, .heads = 1, .head_dim = 4, .base = 100}, tensors);
  const double c0 = std::cos(2.0), s0 = std::sin(2.0), c1 = std::cos(0.2), s1 = std::sin(0.2);
  const std::vector<double> expected{c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1, 5};
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(tensors[2][i], tensors[0][i]);  // position 0 stays
    EXPECT_NEAR(tensors[2][10 + i], expected[static_cast<size_t>(i)], 1e-12);
  }
}

TEST(Rotary, TheInverseIsTheGradient) {
  using F = Rotary;
  const F op{.length = 3, .heads = 2, .head_dim = 4};
  std::vector<Tensor> forward{random_numbers({6, 9}, 1), Tensor(), unwritten({6, 9})};
  Tensor dy = random_numbers({6, 9}, 2), absent, dx = unwritten({6, 9});
  F back = op;
  back.inverse = true;
  evaluate(back, {&dy, &absent, &dx});
  EXPECT_LT(relative_error(dx, differences(op, forward, F::kX, F::kY, dy)), 1e-7);
}

const std::vector<Shape>& swiglu_shapes() {
  static const std::vector<Shape> all{{1, 1}, {3, 5}, {2, 16}, {5, 17}, {4, 1032}, {300, 8}};
  return all;
}

TestTensor halves(const Shape& y) { return uniform(weight({y[0], 2 * y[1]}), 1, -6, 6); }

class SwigluTest : public OpsTest {};

TEST_P(SwigluTest, Forward) {
  for (const Shape& y : swiglu_shapes()) {
    check({.name = y.to_string(), .op = SwigluForward{}, .tensors = {halves(y), weight(y)}});
  }
}

TEST_P(SwigluTest, Backward) {
  for (const Shape& y : swiglu_shapes()) {
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
