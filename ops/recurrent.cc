#include "ops/recurrent.h"

#include "ops/op.h"

namespace trireme::ops {
namespace {

void check_layer(const Checker& c, RecurrentCell cell, int x, int weight_ih, int weight_hh, int y) {
  c.rank(x, 3);
  c.rank(y, 3);
  const Shape& in = c.shape(x);
  const int64_t hidden = c.shape(y)[2], rows = gates_of(cell) * hidden;
  c.at_least(1, {in.begin(), 3}, "each size of x");
  c.at_least(1, {&hidden, 1}, "the size of the state");
  c.is(weight_ih, {rows, in[2]});
  c.is(weight_hh, {rows, hidden});
  c.is(y, {in[0], in[1], hidden});
}

// The tokens say where documents end, in the order in which the rows are read.
void check_documents(const Checker& c, int tokens, const Shape& y, bool reverse) {
  if (!c.present(tokens)) return;
  c.is_i32(tokens, {y[0], y[1]});
  if (reverse) c.refuse("tokens require sequences that are read from their first row");
}

// Of the products with both weights, for all rows.
double product_flops(const TensorSpec& x, const TensorSpec& weight_ih,
                     const TensorSpec& weight_hh) {
  const auto rows = static_cast<double>(x.shape[0] * x.shape[1]);
  return 2 * rows * static_cast<double>(weight_ih.shape.elements() + weight_hh.shape.elements());
}

}  // namespace

const OpInfo RecurrentForward::kInfo{.name = "recurrent_forward",
                                     .args = {{"x", Use::kIn},
                                              {"weight_ih", Use::kIn},
                                              {"weight_hh", Use::kIn},
                                              {"bias_ih", Use::kIn},
                                              {"bias_hh", Use::kIn},
                                              {"initial state", Use::kIn, kOptional},
                                              {"tokens", Use::kIn, kOptional},
                                              {"y", Use::kOut},
                                              {"final state", Use::kOut, kOptional},
                                              {"workspace", Use::kOut, kOptional}}};
void RecurrentForward::check(const Checker& c) const {
  check_layer(c, cell, kX, kWeightIh, kWeightHh, kY);
  const Shape& y = c.shape(kY);
  c.is(kBiasIh, {gates_of(cell) * y[2]});
  c.is(kBiasHh, {gates_of(cell) * y[2]});
  check_documents(c, kTokens, y, reverse);
  c.is(kInitial, {y[0], states_of(cell), y[2]});
  c.is(kFinal, {y[0], states_of(cell), y[2]});
}
double RecurrentForward::flops(Specs specs) const {
  return product_flops(specs[kX], specs[kWeightIh], specs[kWeightHh]);
}

const OpInfo RecurrentBackward::kInfo{.name = "recurrent_backward",
                                      .args = {{"x", Use::kIn},
                                               {"weight_ih", Use::kIn},
                                               {"weight_hh", Use::kIn},
                                               {"initial state", Use::kIn, kOptional},
                                               {"tokens", Use::kIn, kOptional},
                                               {"y", Use::kIn},
                                               {"workspace", Use::kIn},
                                               {"dy", Use::kIn},
                                               {"dx", Use::kOut, kOptional},
                                               {"dweight_ih", Use::kOut, kOptional},
                                               {"dweight_hh", Use::kOut, kOptional},
                                               {"dbias_ih", Use::kOut, kOptional},
                                               {"dbias_hh", Use::kOut, kOptional}}};
void RecurrentBackward::check(const Checker& c) const {
  check_layer(c, cell, kX, kWeightIh, kWeightHh, kY);
  const Shape& y = c.shape(kY);
  check_documents(c, kTokens, y, reverse);
  c.is(kInitial, {y[0], states_of(cell), y[2]});
  c.is(kDy, y);
  c.is(kDx, c.shape(kX));
  if (!c.present(kDweightIh) && !c.present(kDweightHh) && !c.present(kDbiasIh) &&
      !c.present(kDbiasHh)) {
    return;
  }
  c.needs(kDweightIh, c.shape(kWeightIh));
  c.needs(kDweightHh, c.shape(kWeightHh));
  c.needs(kDbiasIh, {gates_of(cell) * y[2]});
  c.needs(kDbiasHh, {gates_of(cell) * y[2]});
}
double RecurrentBackward::flops(Specs specs) const {
  const auto rows = static_cast<double>(specs[kX].shape[0] * specs[kX].shape[1]);
  const auto in = static_cast<double>(specs[kWeightIh].shape.elements());
  const auto hidden = static_cast<double>(specs[kWeightHh].shape.elements());
  double products = hidden;  // of the gradients of the states
  if (!is_absent(specs[kDx])) products += in;
  if (!is_absent(specs[kDweightIh])) products += in + hidden;
  return 2 * rows * products;
}

const OpInfo CachedRecurrent::kInfo{.name = "cached_recurrent",
                                    .args = {{"x", Use::kIn},
                                             {"weight_ih", Use::kIn},
                                             {"weight_hh", Use::kIn},
                                             {"bias_ih", Use::kIn},
                                             {"bias_hh", Use::kIn},
                                             {"starts", Use::kIn},
                                             {"tokens", Use::kIn, kOptional},
                                             {"cache", Use::kInOut},
                                             {"y", Use::kOut}}};
void CachedRecurrent::check(const Checker& c) const {
  check_layer(c, cell, kX, kWeightIh, kWeightHh, kY);
  const Shape& y = c.shape(kY);
  c.is(kBiasIh, {gates_of(cell) * y[2]});
  c.is(kBiasHh, {gates_of(cell) * y[2]});
  c.is_i32(kStarts, {y[0]});
  check_documents(c, kTokens, y, /*reverse=*/false);
  c.rank(kCache, 4);
  c.is(kCache, {y[0], c.shape(kCache)[1], states_of(cell), y[2]});
}
double CachedRecurrent::flops(Specs specs) const {
  return product_flops(specs[kX], specs[kWeightIh], specs[kWeightHh]);
}

}  // namespace trireme::ops
