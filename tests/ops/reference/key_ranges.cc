#include <algorithm>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const SequenceLengths& op, Specs specs) {
  using O = SequenceLengths;
  const Shape shape = specs[O::kTokens].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    const auto* tokens = pointer<const int32_t>(args, O::kTokens);
    for (int64_t sample = 0; sample < shape[0]; ++sample) {
      int32_t& length = pointer<int32_t>(args, O::kLengths)[sample];
      length = 0;
      for (int64_t t = 0; t < shape[1]; ++t) {
        if (tokens[sample * shape[1] + t] != op.padding) length = static_cast<int32_t>(t + 1);
      }
    }
  });
}

Plan plan(const DocumentStarts& op, Specs specs) {
  using O = DocumentStarts;
  const Shape shape = specs[O::kTokens].shape;
  const int64_t positions = is_absent(specs[O::kCache]) ? 0 : specs[O::kCache].shape[1];
  return host_op(std::move(specs), [=](Args args, void*) {
    const auto* tokens = pointer<const int32_t>(args, O::kTokens);
    auto* cache = pointer<int32_t>(args, O::kCache);
    for (int64_t sample = 0; sample < shape[0]; ++sample) {
      const int64_t begin = cache ? pointer<const int32_t>(args, O::kPartStarts)[sample] : 0;
      const auto start_at = [&](int64_t t) -> int64_t {
        for (; t > 0; --t) {
          if (tokens[sample * shape[1] + t - 1] == op.end) return begin + t;
        }
        return begin > 0 && begin <= positions ? cache[sample * positions + begin - 1] : 0;
      };
      for (int64_t t = 0; t < shape[1]; ++t) {
        pointer<int32_t>(args, O::kStarts)[sample * shape[1] + t] =
            static_cast<int32_t>(start_at(t));
      }
      for (int64_t t = 0; t < shape[1] && begin + t < positions; ++t) {
        cache[sample * positions + begin + t] = static_cast<int32_t>(start_at(t + 1));
      }
    }
  });
}

Plan plan(const SegmentIds& op, Specs specs) {
  using O = SegmentIds;
  const Shape shape = specs[O::kTokens].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const auto* tokens = pointer<const int32_t>(args, O::kTokens) + i / shape[1] * shape[1];
      const auto ends = std::count(tokens, tokens + i % shape[1], op.end);
      pointer<int32_t>(args, O::kSegments)[i] =
          static_cast<int32_t>(std::min<int64_t>(ends, op.segments - 1));
    }
  });
}

}  // namespace trireme::ops::reference
