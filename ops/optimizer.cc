#include "ops/optimizer.h"

#include <fmt/format.h>

#include "ops/loss_scale.h"

namespace trireme::ops {
namespace {

void check_ranges(const Checker& c, const std::vector<UpdateRange>& all, const Shape& array) {
  int64_t end = 0;
  for (const UpdateRange& range : all) {
    if (range.begin < end || range.end < range.begin || range.end > array.elements()) {
      c.refuse(fmt::format("range [{}, {}) must come after {} and end within {}", range.begin,
                           range.end, end, array.elements()));
    }
    end = range.end;
  }
}

// Checks the elements of an array that belong to a range.
void check_shift(const Checker& c, int array, const char* what, const UpdateRange& range,
                 int64_t shift) {
  const int64_t elements = c.shape(array).elements();
  const bool fits = range.begin + shift >= 0 && range.end + shift <= elements;
  if (fits && shift % 4 == 0) return;
  c.refuse(fmt::format("range [{}, {}) cannot have {} from {} on of {}", range.begin, range.end,
                       what, range.begin + shift, elements));
}

// Checks the slots, which are the args from `first` on and have an element for each of the ranges.
void check_slots(const Checker& c, const UpdateRule& rule, int first,
                 const std::vector<UpdateRange>& ranges) {
  const int end = first + static_cast<int>(slots_of(rule).size());
  c.count(static_cast<size_t>(end));
  for (int slot = first; slot < end; ++slot) {
    c.is(slot, c.present(first) ? c.shape(first) : c.shape(0));
    for (const UpdateRange& range : ranges) check_shift(c, slot, "slots", range, range.slot_shift);
  }
}

void check_gradients(const Checker& c, int gradients, const std::vector<UpdateRange>& ranges) {
  c.rank(gradients, 1);
  for (const UpdateRange& range : ranges) {
    check_shift(c, gradients, "gradients", range, range.gradient_shift);
  }
}

template <class Op>
void check_scaling(const Checker& c, float max_norm) {
  c.is_struct<LossScale>(Op::kLossScale);
  c.is(Op::kMetrics, {kMetricCount});
  if (max_norm > 0 || c.present(Op::kLossScale)) c.needs(Op::kSquares, {1});
}

}  // namespace

const OpInfo SumOfSquares::kInfo{.name = "sum_of_squares",
                                 .args = {{"x", Use::kIn}, {"sum", Use::kOut}}};
void SumOfSquares::check(const Checker& c) const {
  c.is(kSum, {1});
  check_ranges(c, ranges, c.shape(kX));
  check_ranges(c, checked_ranges, c.shape(kX));
}

const OpInfo TensorSquares::kInfo{.name = "tensor_squares",
                                  .args = {{"parameters", Use::kIn},
                                           {"gradients", Use::kIn},
                                           {"sum of squares", Use::kIn, kOptional},
                                           {"loss scale", Use::kIn, kOptional},
                                           {"metrics", Use::kIn, kOptional},
                                           {"state", Use::kIn},
                                           {"sums", Use::kOut},
                                           {"slot", Use::kIn}},
                                  .variadic = true};
void TensorSquares::check(const Checker& c) const {
  if (!is_layer_wise(rule)) c.refuse("the rule is not layer-wise");
  check_slots(c, rule, kSlots, ranges);
  check_gradients(c, kGradients, ranges);
  c.is(kSums, {static_cast<int64_t>(ranges.size()), 2});
  check_scaling<TensorSquares>(c, max_norm);
  check_ranges(c, ranges, c.shape(kParameters));
}

const OpInfo TrustRatios::kInfo{
    .name = "trust_ratios",
    .args = {{"sums", Use::kIn}, {"state", Use::kIn}, {"ratios", Use::kOut}}};
void TrustRatios::check(const Checker& c) const {
  if (!is_layer_wise(rule)) c.refuse("the rule is not layer-wise");
  c.is(kSums, {static_cast<int64_t>(ranges.size()), 2});
  c.is(kRatios, {static_cast<int64_t>(ranges.size())});
}

const OpInfo Update::kInfo{.name = "update",
                           .args = {{"parameters", Use::kInOut},
                                    {"gradients", Use::kIn},
                                    {"sum of squares", Use::kInOut, kOptional},
                                    {"loss scale", Use::kIn, kOptional},
                                    {"metrics", Use::kIn, kOptional},
                                    {"state", Use::kIn},
                                    {"low precision", Use::kOut, kOptional},
                                    {"trust ratios", Use::kIn, kOptional},
                                    {"average", Use::kInOut, kOptional},
                                    {"slot", Use::kInOut}},
                           .variadic = true};
void Update::check(const Checker& c) const {
  check_slots(c, rule, kSlots, ranges);
  const Shape& array = c.shape(kParameters);
  check_gradients(c, kGradients, ranges);
  c.is(kLowPrecision, array);
  c.is(kAverage, array);
  if (is_layer_wise(rule)) c.needs(kTrustRatios, {static_cast<int64_t>(ranges.size())});
  check_scaling<Update>(c, max_norm);
  check_ranges(c, ranges, array);
}

}  // namespace trireme::ops
