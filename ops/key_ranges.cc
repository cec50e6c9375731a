#include "ops/key_ranges.h"

namespace trireme::ops {

const OpInfo SequenceLengths::kInfo{.name = "sequence_lengths",
                                    .args = {{"tokens", Use::kIn}, {"lengths", Use::kOut}}};
void SequenceLengths::check(const Checker& c) const {
  c.rank(kTokens, 2);
  c.is_i32(kTokens, c.shape(kTokens));
  c.is_i32(kLengths, {c.shape(kTokens)[0]});
}

const OpInfo DocumentStarts::kInfo{.name = "document_starts",
                                   .args = {{"tokens", Use::kIn},
                                            {"part starts", Use::kIn, kOptional},
                                            {"cache", Use::kInOut, kOptional},
                                            {"starts", Use::kOut}}};
void DocumentStarts::check(const Checker& c) const {
  c.rank(kTokens, 2);
  const Shape& tokens = c.shape(kTokens);
  c.is_i32(kTokens, tokens);
  c.is_i32(kStarts, tokens);
  c.is_i32(kPartStarts, {tokens[0]});
  if (c.present(kPartStarts) != c.present(kCache)) c.refuse("parts require a cache");
  if (!c.present(kCache)) return;
  c.rank(kCache, 2);
  c.is_i32(kCache, {tokens[0], c.shape(kCache)[1]});
}

const OpInfo SegmentIds::kInfo{.name = "segment_ids",
                               .args = {{"tokens", Use::kIn}, {"segments", Use::kOut}}};
void SegmentIds::check(const Checker& c) const {
  c.rank(kTokens, 2);
  c.is_i32(kTokens, c.shape(kTokens));
  c.is_i32(kSegments, c.shape(kTokens));
  const int64_t count = segments;
  c.at_least(1, {&count, 1}, "the number of segments");
}

}  // namespace trireme::ops
