// The keys that attention may see, and the segments of a sequence, computed from tokens [B, T],
// i32.
#pragma once

#include <cstdint>

#include "ops/op_info.h"

namespace trireme::ops {

// Computes lengths [B], i32: the number of tokens of each sequence without the tokens `padding` at
// its end.
struct SequenceLengths {
  enum Arg { kTokens, kLengths, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int32_t padding = 0;
};

// Computes starts [B, T], i32: the position of the first token of each token's document. A document
// ends with the token `end`, or with its sequence.
//
// For sequences that are read in parts, kPartStarts [B], i32 and not negative, has the positions of
// the first tokens of the parts. kCache [B, positions], i32, has for each position before them the
// start of the document of the token that follows; those of this part are added. Results for tokens
// at positions that the cache does not have are meaningless.
struct DocumentStarts {
  enum Arg { kTokens, kPartStarts, kCache, kStarts, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int32_t end = 0;
};

// Computes segments [B, T], i32, from 0 to `segments` - 1: the number of tokens `end` before each
// token in its sequence, or the largest segment if there are more. So a token `end` belongs to the
// segment that it ends.
struct SegmentIds {
  enum Arg { kTokens, kSegments, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int32_t end = -1;  // a negative one does not occur, so that all segments are 0
  int32_t segments = 1;
};

}  // namespace trireme::ops
