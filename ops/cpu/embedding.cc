#include "ops/embedding.h"

#include <fmt/format.h>

#include <cstring>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"
#include "ops/row_positions.h"

namespace trireme::ops::cpu {
namespace {

template <class T>
TRIREME_VECTORIZED void add_rows(const T* a, const T* b, T* y, int64_t width) {
  for (int64_t i = 0; i < width; ++i) y[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
}

void check_tokens(const int32_t* tokens, int64_t rows, int64_t vocabulary) {
  for (int64_t r = 0; r < rows; ++r) {
    if (tokens[r] >= 0 && tokens[r] < vocabulary) continue;
    throw Error(fmt::format("token {} of row {} is outside the vocabulary, [0, {})", tokens[r], r,
                            vocabulary));
  }
}

}  // namespace

Plan plan(const EmbeddingForward& op, const EnginePtr&, Specs given) {
  using Op = EmbeddingForward;
  const int64_t rows = given[Op::kY].shape[0], width = given[Op::kY].shape[1];
  const int64_t vocabulary = given[Op::kTable].shape[0];
  const int64_t length = sequence_length(op.length, given[Op::kPositions], 1);
  const int64_t part = part_rows(given[Op::kStarts], rows);
  return with_element(given[Op::kY].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [=](Args args, void*) {
      const RowPositions position{pointer<const int32_t>(args, Op::kStarts), part, length};
      const auto* tokens = pointer<const int32_t>(args, Op::kTokens);
      const auto* table = pointer<const T>(args, Op::kTable);
      const auto* positions = pointer<const T>(args, Op::kPositions);
      auto* y = pointer<T>(args, Op::kY);
      check_tokens(tokens, rows, vocabulary);
      parallel_for(rows, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* entry = table + tokens[r] * width;
          if (positions) {
            add_rows(entry, positions + position(r) * width, y + r * width, width);
          } else {
            std::memcpy(y + r * width, entry, static_cast<size_t>(width) * sizeof(T));
          }
        }
      });
    });
  });
}

// Threads divide the columns, so that every sum runs over the rows in order.
Plan plan(const EmbeddingBackward& op, const EnginePtr&, Specs given) {
  using Op = EmbeddingBackward;
  const int64_t rows = given[Op::kDy].shape[0], width = given[Op::kDy].shape[1];
  const int64_t vocabulary = given[Op::kDtable].shape[0];
  const int64_t length = sequence_length(op.length, given[Op::kDpositions], 0);
  const int64_t positions = sequence_length(0, given[Op::kDpositions], 0);
  return with_element(given[Op::kDy].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [=](Args args, void*) {
      const auto* tokens = pointer<const int32_t>(args, Op::kTokens);
      const auto* dy = pointer<const T>(args, Op::kDy);
      const auto* addend = pointer<const float>(args, Op::kAddend);
      auto* dtable = pointer<float>(args, Op::kDtable);
      auto* dpositions = pointer<float>(args, Op::kDpositions);
      check_tokens(tokens, rows, vocabulary);
      parallel_for(vocabulary, [&](int64_t begin, int64_t end) {
        const size_t bytes = static_cast<size_t>((end - begin) * width) * sizeof(float);
        if (!addend) std::memset(dtable + begin * width, 0, bytes);
        if (addend && addend != dtable) {
          std::memcpy(dtable + begin * width, addend + begin * width, bytes);
        }
      });
      parallel_for(width, [&](int64_t begin, int64_t end) {
        for (int64_t t = 0; t < positions; ++t) {
          std::memset(dpositions + t * width + begin, 0,
                      static_cast<size_t>(end - begin) * sizeof(float));
        }
        for (int64_t r = 0; r < rows; ++r) {
          const T* row = dy + r * width + begin;
          accumulate_row(row, dtable + tokens[r] * width + begin, end - begin);
          if (length == 0) continue;
          accumulate_row(row, dpositions + r % length * width + begin, end - begin);
        }
      });
    });
  });
}

}  // namespace trireme::ops::cpu
