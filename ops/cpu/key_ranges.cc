#include "ops/key_ranges.h"

#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {

Plan plan(const SequenceLengths& op, const EnginePtr&, Specs given) {
  using Op = SequenceLengths;
  const int64_t samples = given[Op::kTokens].shape[0], length = given[Op::kTokens].shape[1];
  return host_op(in_row_major(given), [=](Args args, void*) {
    const auto* tokens = pointer<const int32_t>(args, Op::kTokens);
    auto* lengths = pointer<int32_t>(args, Op::kLengths);
    for (int64_t sample = 0; sample < samples; ++sample, tokens += length) {
      int64_t end = length;
      while (end > 0 && tokens[end - 1] == op.padding) --end;
      lengths[sample] = static_cast<int32_t>(end);
    }
  });
}

Plan plan(const DocumentStarts& op, const EnginePtr&, Specs given) {
  using Op = DocumentStarts;
  const int64_t samples = given[Op::kTokens].shape[0], length = given[Op::kTokens].shape[1];
  const int64_t positions = is_absent(given[Op::kCache]) ? 0 : given[Op::kCache].shape[1];
  return host_op(in_row_major(given), [=](Args args, void*) {
    const auto* part_starts = pointer<const int32_t>(args, Op::kPartStarts);
    for (int64_t sample = 0; sample < samples; ++sample) {
      const auto* tokens = pointer<const int32_t>(args, Op::kTokens) + sample * length;
      auto* starts = pointer<int32_t>(args, Op::kStarts) + sample * length;
      auto* cache = pointer<int32_t>(args, Op::kCache) + sample * positions;
      const int64_t begin = part_starts ? part_starts[sample] : 0;
      int32_t start = begin > 0 && begin <= positions ? cache[begin - 1] : 0;
      for (int64_t t = 0; t < length; ++t) {
        starts[t] = start;
        if (tokens[t] == op.end) start = static_cast<int32_t>(begin + t + 1);
        if (begin + t < positions) cache[begin + t] = start;
      }
    }
  });
}

Plan plan(const SegmentIds& op, const EnginePtr&, Specs given) {
  using Op = SegmentIds;
  const int64_t samples = given[Op::kTokens].shape[0], length = given[Op::kTokens].shape[1];
  return host_op(in_row_major(given), [=](Args args, void*) {
    const auto* tokens = pointer<const int32_t>(args, Op::kTokens);
    auto* segments = pointer<int32_t>(args, Op::kSegments);
    for (int64_t sample = 0; sample < samples; ++sample) {
      int32_t segment = 0;
      for (int64_t t = 0; t < length; ++t) {
        *segments++ = segment;
        if (*tokens++ == op.end && segment + 1 < op.segments) ++segment;
      }
    }
  });
}

}  // namespace trireme::ops::cpu
