// Embeddings: the reference against differences, each backend against the reference.
#include "ops/embedding.h"

#include "core/error.h"
#include "tests/ops/differences.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  int64_t samples, length, width, vocabulary;
  int64_t rows() const { return samples * length; }
};

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all{{1, 1, 1, 1},    {2, 3, 5, 7},    {3, 4, 16, 2},
                                        {2, 8, 17, 300}, {4, 100, 24, 9}, {1, 5, 1032, 65}};
  return all;
}

// Some tokens come often, some never.
TestTensor tokens(const Problem& p) {
  TestTensor tensor = exact(DType::kI32, {p.rows()});
  for (int64_t r = 0; r < p.rows(); ++r) {
    tensor.values.push_back(static_cast<double>(r % 3 == 0 ? 0 : (r * r + 5) % p.vocabulary));
  }
  return tensor;
}

class EmbeddingTest : public OpsTest {};

TEST_P(EmbeddingTest, Forward) {
  for (const Problem& p : problems()) {
    for (bool positions : {true, false}) {
      check({.name = positions ? "with positions" : "without positions",
             .op = EmbeddingForward{},
             .tensors = {tokens(p), random(weight({p.vocabulary, p.width}), 1),
                         positions ? random(weight({p.length, p.width}), 2) : none(),
                         weight({p.rows(), p.width})}});
    }
  }
}

TEST_P(EmbeddingTest, Backward) {
  for (const Problem& p : problems()) {
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

TRIREME_ON_ALL_TARGETS(EmbeddingTest);

TEST(EmbeddingGradient, MatchesDifferences) {
  using F = EmbeddingForward;
  Tensor tokens = labels_of({3, 0, 3, 1, 3, 0});
  std::vector<Tensor> forward{tokens, random_numbers({4, 5}, 1), random_numbers({3, 5}, 2),
                              unwritten({6, 5})};
  Tensor dy = random_numbers({6, 5}, 3), addend, dtable = unwritten({4, 5}),
         dpositions = unwritten({3, 5});
  evaluate(EmbeddingBackward{}, {&tokens, &dy, &addend, &dtable, &dpositions});
  EXPECT_LT(relative_error(dtable, differences(F{}, forward, F::kTable, F::kY, dy)), 1e-7);
  EXPECT_LT(relative_error(dpositions, differences(F{}, forward, F::kPositions, F::kY, dy)), 1e-7);
}

}  // namespace
}  // namespace trireme::ops
