// LSTM and GRU: the reference against PyTorch's numbers and against differences, each backend
// against the reference.
#include "ops/recurrent.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "tests/ops/differences.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

using enum RecurrentCell;

struct Problem {
  int64_t samples, length, in, hidden;
  RecurrentCell cell = kLstm;
  bool reverse = false;
  bool initial = false;
  bool documents = false;  // the tokens are 0, 1 and 2, and 1 ends a document

  Shape x() const { return {samples, length, in}; }
  Shape y() const { return {samples, length, hidden}; }
  Shape weight_ih() const { return {gates_of(cell) * hidden, in}; }
  Shape weight_hh() const { return {gates_of(cell) * hidden, hidden}; }
  Shape bias() const { return {gates_of(cell) * hidden}; }
  Shape state() const { return {samples, states_of(cell), hidden}; }
  // Returns a parameter as PyTorch initializes it. Larger ones saturate the gates, whose
  // derivatives are inaccurate in 16 bits then.
  TestTensor initialized(const Shape& shape, uint64_t seed) const {
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    return uniform(weight(shape), seed, -bound, bound);
  }
  std::string name() const {
    return std::string(cell == kLstm ? "lstm " : "gru ") + x().to_string() + " to " +
           std::to_string(hidden) + (reverse ? " reverse" : "") + (initial ? " initial" : "") +
           (documents ? " documents" : "");
  }
};

// One step; fewer sequences than a block has, and more; features that do not fill vectors.
std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const RecurrentCell cell : {kLstm, kGru}) {
    for (const Problem& p : {Problem{1, 1, 1, 1}, Problem{2, 3, 4, 5}, Problem{5, 4, 7, 16},
                             Problem{9, 6, 3, 33}, Problem{67, 2, 5, 8}}) {
      for (const bool reverse : {false, true}) {
        all.push_back(p);
        all.back().cell = cell;
        all.back().reverse = reverse;
        all.back().initial = reverse == (p.samples == 9);
      }
      all.push_back(p);
      all.back().cell = cell;
      all.back().initial = all.back().documents = true;
    }
  }
  return all;
}

constexpr int32_t kDocumentEnd = 1;

TestTensor tokens_of(const Problem& p) {
  std::vector<double> tokens;
  for (int64_t i = 0; i < p.samples * p.length; ++i) tokens.push_back(i * i % 7 % 3);
  return p.documents ? with(exact(DType::kI32, {p.samples, p.length}), tokens) : none();
}

TestTensor numbers(TestTensor tensor, uint64_t seed) { return uniform(tensor, seed, -1, 1); }

Case forward_of(const Problem& p, bool training) {
  return {.name = p.name(),
          .op = RecurrentForward{p.cell, p.reverse, kDocumentEnd},
          .tensors = {numbers(weight(p.x()), 1), p.initialized(p.weight_ih(), 2),
                      p.initialized(p.weight_hh(), 3), p.initialized(p.bias(), 4),
                      p.initialized(p.bias(), 5), p.initial ? numbers(full(p.state()), 6) : none(),
                      tokens_of(p), weight(p.y()), p.initial ? full(p.state()) : none(),
                      training ? workspace({}, {}) : none()},
          .slack = 2};
}

class RecurrentTest : public OpsTest {
 protected:
  // The backward pass after the forward pass, of the target and of the reference.
  Case backward_of(const Problem& p, bool dx, bool parameters) {
    using F = RecurrentForward;
    const Case forward = forward_of(p, /*training=*/true);
    const auto values = reference_values(forward);
    const auto [specs, memory] =
        target_memory(forward, std::vector<Layout>(F::kArgs, Layout::row_major()));
    const auto reference = reference_memory(forward);
    const auto gradient = [&](const Shape& shape) { return parameters ? full(shape) : none(); };
    return {
        .name = p.name(),
        .op = RecurrentBackward{p.cell, p.reverse, kDocumentEnd},
        .tensors = {forward.tensors[F::kX], forward.tensors[F::kWeightIh],
                    forward.tensors[F::kWeightHh], forward.tensors[F::kInitial],
                    forward.tensors[F::kTokens], with(weight(p.y()), values[F::kY]),
                    workspace(memory[F::kWorkspace], reference[F::kWorkspace]),
                    numbers(weight(p.y()), 7), dx ? weight(p.x()) : none(), gradient(p.weight_ih()),
                    gradient(p.weight_hh()), gradient(p.bias()), gradient(p.bias())},
        .slack = 3};
  }
};

TEST_P(RecurrentTest, Forward) {
  for (const Problem& p : problems()) {
    for (const bool training : {true, false}) check(forward_of(p, training));
  }
}

TEST_P(RecurrentTest, Backward) {
  for (const Problem& p : problems()) {
    check(backward_of(p, /*dx=*/true, /*parameters=*/true));
    if (p.samples != 2) continue;
    check(backward_of(p, /*dx=*/false, /*parameters=*/true));
    check(backward_of(p, /*dx=*/true, /*parameters=*/false));
  }
}

// Blocks of sequences depend on the number of threads, sums do not.
// On some processors, oneDNN divides the sums of a product among threads, which changes their last
// digits.
TEST_P(RecurrentTest, ThreadsDivideTheWork) {
  if (GetParam().name.starts_with("cuda")) GTEST_SKIP() << "has no such threads";
  for (const RecurrentCell cell : {kLstm, kGru}) {
    const Problem p{70, 9, 40, 72, cell};
    for (const Case& c : {forward_of(p, true), backward_of(p, true, true)}) {
      const std::vector<Layout> layouts(c.tensors.size(), Layout::row_major());
      const auto expected = reference_values(c);
      for (const int threads : {2, 3, 8}) {
        Bench other(GetParam().device(threads), GetParam().backend);
        const auto plan = other.backend().plan(c.op, specs_of(c, layouts));
        const auto memory = other.run(c.op, *plan, memory_before(other, c, plan->specs()));
        SCOPED_TRACE(fmt::format("{} with {} threads", c.name, threads));
        compare(c, plan->specs(), memory, expected);
      }
      GetParam().device(1);
    }
  }
}

// Parts at the beginning, in the middle, across the last position, and padding.
TEST_P(RecurrentTest, Cached) {
  constexpr int64_t kPositions = 20;
  const std::vector<double> starts{0, 7, kPositions - 3, kPositions - 1, kPositions};
  for (const RecurrentCell cell : {kLstm, kGru}) {
    for (const int64_t length : {1, 5}) {
      Problem p{std::ssize(starts), length, 6, 17, cell};
      p.documents = length > 1;
      const Case whole = forward_of(p, false);
      std::vector<TestTensor> tensors(whole.tensors.begin(), whole.tensors.begin() + 5);
      tensors.push_back(with(exact(DType::kI32, {p.samples}), starts));
      tensors.push_back(tokens_of(p));
      tensors.push_back(numbers(full({p.samples, kPositions, states_of(cell), p.hidden}), 8));
      tensors.push_back(weight(p.y()));
      check({.name = p.name(),
             .op = CachedRecurrent{cell, kDocumentEnd},
             .tensors = tensors,
             .slack = 2});
    }
  }
}

TRIREME_ON_ALL_TARGETS(RecurrentTest);

// The first sequence has three documents, the second one.
Tensor document_tokens(const Problem& p) {
  Tensor tokens = labels_of(std::vector<int32_t>(static_cast<size_t>(p.samples * p.length), 0));
  tokens.spec.shape = {p.samples, p.length};
  for (const size_t row : {0, 2}) {
    reinterpret_cast<int32_t*>(tokens.memory.data())[row] = kDocumentEnd;
  }
  return tokens;
}

std::vector<Tensor> tensors_of(const Problem& p) {
  return {random_numbers(p.x(), 1),
          random_numbers(p.weight_ih(), 2),
          random_numbers(p.weight_hh(), 3),
          random_numbers(p.bias(), 4),
          random_numbers(p.bias(), 5),
          p.initial ? random_numbers(p.state(), 6) : Tensor(),
          p.documents ? document_tokens(p) : Tensor(),
          unwritten(p.y()),
          unwritten(p.state()),
          unsized()};
}

TEST(RecurrentGradient, MatchesDifferences) {
  using F = RecurrentForward;
  using B = RecurrentBackward;
  for (const RecurrentCell cell : {kLstm, kGru}) {
    for (const auto& [reverse, initial, documents] :
         {std::array{false, false, false}, {true, true, false}, {false, true, true}}) {
      const Problem p{2, 4, 3, 2, cell, reverse, initial, documents};
      SCOPED_TRACE(p.name());
      const Op op = F{cell, reverse, kDocumentEnd};
      std::vector<Tensor> forward = tensors_of(p);
      evaluate(op, forward);
      std::vector<Tensor> backward{
          forward[F::kX],           forward[F::kWeightIh],    forward[F::kWeightHh],
          forward[F::kInitial],     forward[F::kTokens],      forward[F::kY],
          forward[F::kWorkspace],   random_numbers(p.y(), 7), unwritten(p.x()),
          unwritten(p.weight_ih()), unwritten(p.weight_hh()), unwritten(p.bias()),
          unwritten(p.bias())};
      evaluate(B{cell, reverse, kDocumentEnd}, backward);
      for (const auto& [input, gradient] : {std::pair{F::kX, B::kDx},
                                            {F::kWeightIh, B::kDweightIh},
                                            {F::kWeightHh, B::kDweightHh},
                                            {F::kBiasIh, B::kDbiasIh},
                                            {F::kBiasHh, B::kDbiasHh}}) {
        EXPECT_LT(relative_error(backward[gradient],
                                 differences(op, forward, input, F::kY, backward[B::kDy])),
                  1e-7)
            << "argument " << input;
      }
    }
  }
}

// A sequence in two halves, of which the second begins with the final state of the first.
TEST(Recurrent, TheFinalStateContinuesASequence) {
  using F = RecurrentForward;
  for (const RecurrentCell cell : {kLstm, kGru}) {
    const Problem p{1, 6, 3, 4, cell}, half{1, 3, 3, 4, cell};
    std::vector<Tensor> whole = tensors_of(p);
    evaluate(F{cell}, whole);
    Tensor state;
    for (const int64_t start : {0, 3}) {
      std::vector<Tensor> part = tensors_of(half);
      for (int64_t i = 0; i < part[F::kX].size(); ++i) {
        part[F::kX][i] = whole[F::kX][start * p.in + i];
      }
      part[F::kInitial] = state;
      evaluate(F{cell}, part);
      state = part[F::kFinal];
      for (int64_t i = 0; i < part[F::kY].size(); ++i) {
        EXPECT_NEAR(part[F::kY][i], whole[F::kY][start * p.hidden + i], 1e-12);
      }
    }
    EXPECT_LT(relative_error(state, whole[F::kFinal]), 1e-12);
  }
}

// A document in a sequence with others has the outputs that it has alone.
TEST(Recurrent, DocumentsBeginWithAStateOf0) {
  using F = RecurrentForward;
  for (const RecurrentCell cell : {kLstm, kGru}) {
    Problem p{1, 4, 3, 2, cell};
    p.documents = true;
    std::vector<Tensor> whole = tensors_of(p);
    evaluate(F{cell, false, kDocumentEnd}, whole);
    for (const auto& [begin, length] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {3, 1}}) {
      std::vector<Tensor> alone = tensors_of({1, length, 3, 2, cell});
      for (int64_t i = 0; i < length * p.in; ++i) alone[F::kX][i] = whole[F::kX][begin * p.in + i];
      evaluate(F{cell}, alone);
      for (int64_t i = 0; i < length * p.hidden; ++i) {
        EXPECT_EQ(alone[F::kY][i], whole[F::kY][begin * p.hidden + i]);
      }
      const bool last = begin == 3;
      if (last) {
        EXPECT_LT(relative_error(whole[F::kFinal], alone[F::kFinal]), 1e-15);
      }
    }
  }
}

// Reading a sequence in parts, with padding after the last one, gives what reading the whole does.
TEST(CachedRecurrent, PartsEqualTheWhole) {
  using F = RecurrentForward;
  for (const RecurrentCell cell : {kLstm, kGru}) {
    const Problem p{1, 5, 3, 2, cell};
    std::vector<Tensor> whole = tensors_of(p);
    evaluate(F{cell}, whole);
    Tensor cache = random_numbers({1, 5, states_of(cell), p.hidden}, 9);
    for (const auto& [start, length, rows] :
         {std::array<int64_t, 3>{0, 3, 2}, {2, 1, 1}, {3, 3, 2}}) {
      Tensor x = filled({1, length, p.in}, 100), y = unwritten({1, length, p.hidden});
      Tensor starts = labels_of({static_cast<int32_t>(start)}), no_tokens;
      for (int64_t i = 0; i < rows * p.in; ++i) x[i] = whole[F::kX][start * p.in + i];
      evaluate(CachedRecurrent{cell},
               {&x, &whole[F::kWeightIh], &whole[F::kWeightHh], &whole[F::kBiasIh],
                &whole[F::kBiasHh], &starts, &no_tokens, &cache, &y});
      for (int64_t i = 0; i < rows * p.hidden; ++i) {
        EXPECT_NEAR(y[i], whole[F::kY][start * p.hidden + i], 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::ops
