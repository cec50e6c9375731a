// Which operators stand for which activation, in both directions. Where ONNX has no operator for
// one there is a formula of several; since everybody writes it differently, a formula is known
// again by what it computes.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/model.pb.h"

namespace trireme::model::onnx {

// One operator of a formula, on the values before it: kX is what the formula is of, 0, 1, ... are
// the results of its terms; anything else is a number.
struct Term {
  static constexpr int kX = -1;
  static constexpr int kNumber = -2;
  const char* op;
  int a = kX;
  int b = kNumber;  // of operators of two
  float number = 0;
};

bool is_binary(std::string_view op);

struct ActivationFormula {
  void (*set)(LayerConfig& layer);
  LayerConfig::KindCase kind;
  std::vector<Term> terms;  // the last one is the result
};
// Null where the layer is no activation.
const ActivationFormula* formula_of(const LayerConfig& layer);

// What a function of one number gives at some points: enough to tell it from any other.
using Probe = std::array<double, 12>;
const Probe& probe_points();
Probe constant_probe(double value);
// Nothing where the operator is not one of those that formulas are made of.
std::optional<Probe> compute(std::string_view op, std::span<const Probe> inputs);
// Null where no activation computes this.
const ActivationFormula* formula_that_computes(const Probe& probe);
// Whether it is x itself.
bool computes_nothing(const Probe& probe);

}  // namespace trireme::model::onnx
