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

}  // namespace

const OpInfo SumOfSquares::kInfo{.name = "sum_of_squares",
                                 .args = {{"x", Use::kIn}, {"sum", Use::kOut}}};
void SumOfSquares::check(const Checker& c) const {
  c.is(kSum, {1});
  check_ranges(c, ranges, c.shape(kX));
  check_ranges(c, watched, c.shape(kX));
}

const OpInfo Update::kInfo{.name = "update",
                           .args = {{"parameters", Use::kInOut},
                                    {"gradients", Use::kIn},
                                    {"sum of squares", Use::kIn, kOptional},
                                    {"loss scale", Use::kIn, kOptional},
                                    {"state", Use::kIn},
                                    {"low precision", Use::kOut, kOptional},
                                    {"slot", Use::kInOut}},
                           .variadic = true};
void Update::check(const Checker& c) const {
  const int end = kSlots + static_cast<int>(slots_of(rule).size());
  c.count(static_cast<size_t>(end));
  const Shape& array = c.shape(kParameters);
  c.is(kGradients, array);
  c.is(kLowPrecision, array);
  for (int slot = kSlots; slot < end; ++slot) c.is(slot, array);
  c.is_struct<LossScale>(kLossScale);
  if (max_norm > 0 || c.present(kLossScale)) c.needs(kSquares, {1});
  check_ranges(c, ranges, array);
}

}  // namespace trireme::ops
