#include "ops/linear_cross_entropy.h"

#include <fmt/format.h>

#include "ops/op.h"
#include "ops/step_state.h"

namespace trireme::ops {

const OpInfo LinearCrossEntropy::kInfo{.name = "linear_cross_entropy",
                                       .args = {{"x", Use::kIn},
                                                {"weight", Use::kIn},
                                                {"bias", Use::kIn, kOptional},
                                                {"labels", Use::kIn},
                                                {"state", Use::kIn},
                                                {"dx", Use::kOut, kOptional},
                                                {"dweight", Use::kOut, kOptional},
                                                {"dbias", Use::kOut, kOptional},
                                                {"metrics", Use::kInOut}},
                                       .aliases = {{kDx, kX}}};

void LinearCrossEntropy::check(const Checker& c) const {
  c.rank(kX, 2);
  c.rank(kWeight, 2);
  const Shape& x = c.shape(kX);
  const int64_t classes = c.shape(kWeight)[0];
  c.is(kWeight, {classes, x[1]});
  c.is(kBias, {classes});
  c.is_i32(kLabels, {x[0]});
  c.is(kDx, x);
  c.is(kDweight, {classes, x[1]});
  c.is(kDbias, {classes});
  c.is(kMetrics, {kMetricCount});
  if (c.present(kDbias) && !c.present(kDweight)) c.refuse("dbias requires dweight");
  loss.check_fields(c, classes);
  if (chunk_rows < 0 || chunk_rows % kRowMultiple != 0) {
    c.refuse(fmt::format("chunk_rows must be a multiple of {}, got {}", kRowMultiple, chunk_rows));
  }
}

double LinearCrossEntropy::flops(Specs specs) const {
  const int products = 1 + !is_absent(specs[kDx]) + !is_absent(specs[kDweight]);
  return 2.0 * products * static_cast<double>(specs[kX].shape.elements()) *
         static_cast<double>(specs[kWeight].shape[0]);
}

}  // namespace trireme::ops
