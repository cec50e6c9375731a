// Attention: the reference against PyTorch's numbers and against differences, each backend against
// the reference.
#include <cmath>

#include "ops/cached_attention.h"
#include "tests/ops/differences.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  int64_t samples, length, dim;
  AttentionShape shape;
  std::vector<double> lengths = {};  // empty: all of `length`
  bool documents = false;            // attention is kept inside documents

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
      {1, 260, 4, {1, 1, false, 0.4f}},       {3, 260, 8, {4, 2, false, 0.4f}, {140, 0, 260}},
      {2, 197, 8, {2, 2, false, 0.3f}},       {2, 197, 8, {2, 1, false, 0.3f}, {197, 66}},
  };
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) {
    all.push_back(all[i]);
    all.back().shape.causal = true;
  }
  for (const Problem& p : {all[count + 2], all[count + 5], all[count + 6]}) {
    all.push_back(p);
    all.back().documents = true;
  }
  all.push_back({1, 260, 4, {1, 1, true, 0.4f}, {140}, true});  // padding in several steps of keys
  return all;
}

TestTensor lengths_of(const Problem& p) {
  return p.lengths.empty() ? none() : with(exact(DType::kI32, {p.samples}), p.lengths);
}

// Documents of one token, and ones that end inside and at the ends of blocks and steps.
TestTensor first_keys_of(const Problem& p) {
  if (!p.documents) return none();
  TestTensor first_keys = exact(DType::kI32, {p.samples, p.length});
  for (int64_t sample = 0; sample < p.samples; ++sample) {
    double first = 0;
    for (int64_t t = 0; t < p.length; ++t) {
      for (const int64_t begin : {2, 3, 64, 66, 128, 190}) {
        if (t == begin + sample) first = static_cast<double>(t);
      }
      first_keys.values.push_back(first);
    }
  }
  return first_keys;
}

std::string name_of(const Problem& p) {
  return p.qkv().to_string() + (p.documents ? " documents" : p.shape.causal ? " causal" : "");
}

class AttentionTest : public OpsTest {};

TEST_P(AttentionTest, Forward) {
  for (const Problem& p : problems()) {
    for (bool training : {true, false}) {
      if (!training && p.documents) continue;
      check({.name = name_of(p),
             .op = AttentionForward{p.shape},
             .tensors = {random(weight(p.qkv()), 1), lengths_of(p), first_keys_of(p), weight(p.y()),
                         training ? full(p.saved()) : none()}});
    }
  }
}

TEST_P(AttentionTest, Backward) {
  using F = AttentionForward;
  for (const Problem& p : problems()) {
    const Case forward{.name = "forward",
                       .op = F{p.shape},
                       .tensors = {random(weight(p.qkv()), 1), lengths_of(p), first_keys_of(p),
                                   weight(p.y()), full(p.saved())}};
    const auto results = reference_values(forward);
    check(
        {.name = name_of(p),
         .op = AttentionBackward{p.shape},
         .tensors = {random(weight(p.qkv()), 1), lengths_of(p), first_keys_of(p),
                     with(weight(p.y()), results[F::kY]), with(full(p.saved()), results[F::kSaved]),
                     random(weight(p.y()), 2), weight(p.qkv())}});
  }
}

// Scores whose exponentials overflow.
TEST_P(AttentionTest, LargeScores) {
  for (const bool documents : {false, true}) {
    const Problem p{1, 70, 8, {1, 1, true, 30.0f}, {}, documents};
    check({.name = name_of(p),
           .op = AttentionForward{p.shape},
           .tensors = {uniform(weight(p.qkv()), 1, -2, 2), none(), first_keys_of(p), weight(p.y()),
                       full(p.saved())},
           .slack = 20});
  }
}

// Sequences at their beginning, in the middle, up to the last position, beyond it, and padding.
TEST_P(AttentionTest, Cached) {
  constexpr int64_t kPositions = 150;
  const std::vector<double> starts{0, 33, kPositions - 5, kPositions - 4, kPositions};
  for (int64_t dim : {4, 33, 64, 128}) {
    for (int64_t length : {1, 5}) {
      const Problem p{std::ssize(starts), length, dim, {4, 2, true, 0.3f}};
      const Shape cache{p.samples, kPositions, 2 * p.shape.kv_heads * dim};
      TestTensor first_keys = exact(DType::kI32, {p.samples, length});
      for (int64_t i = 0; i < p.samples * length; ++i) {
        const double position = starts[static_cast<size_t>(i / length)] + i % length;
        first_keys.values.push_back(i % 3 == 0 ? position : std::floor(position / 2));
      }
      for (const TestTensor& first : {none(), first_keys}) {
        check(
            {.name = name_of(p),
             .op = CachedAttention{p.shape},
             .tensors = {random(weight(p.qkv()), 1), with(exact(DType::kI32, {p.samples}), starts),
                         first, random(weight(cache), 2), weight(p.y())}});
      }
    }
  }
}

// Sequences that end with padding, are all padding, have none, and have some inside.
TEST_P(AttentionTest, SequenceLengths) {
  for (const int64_t length : {1, 31, 32, 70}) {
    TestTensor tokens = exact(DType::kI32, {5, length});
    for (int64_t i = 0; i < 5 * length; ++i) {
      const int64_t sample = i / length, t = i % length;
      const bool padding = t >= length * sample / 4 || t % 7 == 3;
      tokens.values.push_back(padding ? 9 : static_cast<double>(t % 8));
    }
    check({.name = std::to_string(length),
           .op = SequenceLengths{9},
           .tensors = {tokens, exact(DType::kI32, {5})}});
  }
}

// Whole sequences; and parts at the beginning, in the middle, across the last position and beyond.
TEST_P(AttentionTest, DocumentStarts) {
  constexpr int64_t kPositions = 90;
  for (const int64_t length : {1, 5, 32, 70}) {
    const TestTensor starts = exact(DType::kI32, {4, length});
    for (const double every : {1, 3, 40, 1000}) {
      TestTensor tokens = exact(DType::kI32, {4, length});
      for (int64_t i = 0; i < 4 * length; ++i) {
        tokens.values.push_back(std::fmod(static_cast<double>(i), every));
      }
      check(
          {.name = "whole", .op = DocumentStarts{0}, .tensors = {tokens, none(), none(), starts}});
      const std::vector<double> parts{0, 13, kPositions - 1, kPositions};
      check({.name = "parts",
             .op = DocumentStarts{0},
             .tensors = {tokens, with(exact(DType::kI32, {4}), parts),
                         uniform(exact(DType::kI32, {4, kPositions}), 1, 0, 9), starts}});
    }
  }
}

TRIREME_ON_ALL_TARGETS(AttentionTest);

// Reading a sequence in parts gives what attention gives for the whole.
TEST(CachedAttention, PartsEqualTheWhole) {
  const Problem p{1, 5, 3, {4, 2, true, 0.6f}};
  std::vector<Tensor> whole{random_numbers(p.qkv(), 1), Tensor(), Tensor(), unwritten(p.y()),
                            Tensor()};
  evaluate(AttentionForward{p.shape}, whole);
  const int64_t row = p.qkv()[2], y_row = p.y()[2];
  Tensor cache = random_numbers({1, 5, 2 * p.shape.kv_heads * p.dim}, 2), none;
  for (const auto& [start, length] : {std::pair<int64_t, int64_t>{0, 3}, {3, 1}, {4, 1}}) {
    Tensor qkv = unwritten({1, length, row}), y = unwritten({1, length, y_row});
    Tensor starts = labels_of({static_cast<int32_t>(start)});
    for (int64_t i = 0; i < length * row; ++i) qkv[i] = whole[0][start * row + i];
    evaluate(CachedAttention{p.shape}, {&qkv, &starts, &none, &cache, &y});
    for (int64_t i = 0; i < length * y_row; ++i) {
      EXPECT_NEAR(y[i], whole[AttentionForward::kY][start * y_row + i], 1e-12);
    }
  }
}

TEST(AttentionGradient, MatchesDifferences) {
  using F = AttentionForward;
  Tensor lengths = labels_of({3, 4});
  Tensor documents = stored<int32_t>(DType::kI32, {2, 4}, {0, 1, 1, 3, 0, 0, 2, 2});
  for (const auto& [causal, first_keys] :
       {std::pair{false, Tensor()}, {true, Tensor()}, {true, documents}}) {
    const Problem p{2, 4, 2, {4, 2, causal, 0.7f}};
    std::vector<Tensor> forward{random_numbers(p.qkv(), 1), lengths, first_keys, unwritten(p.y()),
                                unwritten(p.saved())};
    evaluate(F{p.shape}, forward);
    Tensor dy = random_numbers(p.y(), 2), dqkv = unwritten(p.qkv());
    evaluate(AttentionBackward{p.shape}, {&forward[F::kQkv], &lengths, &forward[F::kFirstKeys],
                                          &forward[F::kY], &forward[F::kSaved], &dy, &dqkv});
    EXPECT_LT(relative_error(dqkv, differences(F{p.shape}, forward, F::kQkv, F::kY, dy)), 1e-7);
  }
}

}  // namespace
}  // namespace trireme::ops
