#include "ops/optimizer.h"

#include <fmt/format.h>

#include "ops/loss_scale.h"

namespace trireme {
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

// `arrays`: those that lie like the parameters.
template <class O>
void check_update(const Checker& c, const O& op, std::initializer_list<int> arrays) {
  const Shape& parameters = c.shape(O::kParameters);
  for (int array : arrays) c.is(array, parameters);
  c.is_struct<LossScale>(O::kLossScale);
  if (op.max_norm > 0 || c.present(O::kLossScale)) c.needs(O::kSquares, {1});
  check_ranges(c, op.ranges, parameters);
}

}  // namespace

const OpInfo SumOfSquares::kInfo{.name = "sum_of_squares",
                                 .args = {{"x", Use::kIn}, {"sum", Use::kOut}}};
void SumOfSquares::check(const Checker& c) const {
  c.is(kSum, {1});
  check_ranges(c, ranges, c.shape(kX));
  check_ranges(c, watched, c.shape(kX));
}

const OpInfo SgdUpdate::kInfo{.name = "sgd_update",
                              .args = {{"parameters", Use::kInOut},
                                       {"gradients", Use::kIn},
                                       {"velocity", Use::kInOut, kOptional},
                                       {"sum of squares", Use::kIn, kOptional},
                                       {"loss scale", Use::kIn, kOptional},
                                       {"state", Use::kIn},
                                       {"low precision", Use::kOut, kOptional}}};
void SgdUpdate::check(const Checker& c) const {
  check_update(c, *this, {kGradients, kVelocity, kLowPrecision});
  if (c.present(kVelocity) != (momentum != 0)) {
    c.refuse("needs a velocity with momentum, and none without");
  }
}

const OpInfo AdamUpdate::kInfo{.name = "adam_update",
                               .args = {{"parameters", Use::kInOut},
                                        {"gradients", Use::kIn},
                                        {"moment1", Use::kInOut},
                                        {"moment2", Use::kInOut},
                                        {"sum of squares", Use::kIn, kOptional},
                                        {"loss scale", Use::kIn, kOptional},
                                        {"state", Use::kIn},
                                        {"low precision", Use::kOut, kOptional}}};
void AdamUpdate::check(const Checker& c) const {
  check_update(c, *this, {kGradients, kMoment1, kMoment2, kLowPrecision});
}

}  // namespace trireme
