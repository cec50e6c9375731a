#include "ops/loss.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "ops/step_state.h"

namespace trireme::ops {

const OpInfo SoftmaxCrossEntropy::kInfo{.name = "softmax_cross_entropy",
                                        .args = {{"logits", Use::kIn},
                                                 {"labels", Use::kIn},
                                                 {"state", Use::kIn},
                                                 {"dlogits", Use::kOut, kOptional},
                                                 {"metrics", Use::kInOut}},
                                        .aliases = {{kDlogits, kLogits}}};
void SoftmaxCrossEntropy::check(const Checker& c) const {
  c.rank(kLogits, 2);
  const DType labels = c.dtype(kLabels);
  if (labels != DType::kI32 && labels != DType::kF32) {
    c.refuse(fmt::format("labels must be i32 or f32, got {}", name_of(labels)));
  }
  c.is(kLabels, labels == DType::kF32 ? c.shape(kLogits) : Shape{c.shape(kLogits)[0]});
  c.is(kDlogits, c.shape(kLogits));
  c.is(kMetrics, {kMetricCount});
  check_fields(c, c.shape(kLogits)[1]);
}

void SoftmaxCrossEntropy::check_fields(const Checker& c, int64_t classes) const {
  if (!class_weights.empty() && std::ssize(class_weights) != classes) {
    c.refuse(fmt::format("{} class weights for {} classes", class_weights.size(), classes));
  }
  c.at_least(1, std::array{labels_per_sample}, "labels per sample");
  c.at_least(0, std::array{first_row}, "the first row");
}

const OpInfo MeanSquaredError::kInfo{.name = "mean_squared_error",
                                     .args = {{"prediction", Use::kIn},
                                              {"target", Use::kIn},
                                              {"state", Use::kIn},
                                              {"dprediction", Use::kOut, kOptional},
                                              {"metrics", Use::kInOut}},
                                     .aliases = {{kDprediction, kPrediction}}};
void MeanSquaredError::check(const Checker& c) const {
  c.rank(kPrediction, 2);
  c.is(kTarget, c.shape(kPrediction));
  c.is(kDprediction, c.shape(kPrediction));
  c.is(kMetrics, {kMetricCount});
}

}  // namespace trireme::ops
