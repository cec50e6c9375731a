// Maps activations to ONNX operators and back. An activation without an operator of its own is a
// formula of several operators. Since exporters write formulas differently, the importer recognizes
// a formula by the values that it computes.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/model.pb.h"

namespace trireme::model::onnx {

// One operator of a formula. An operand is the input of the formula (kX), the constant `number`
// (kNumber), or the result of the term with this index.
struct Term {
  static constexpr int kX = -1;
  static constexpr int kNumber = -2;
  const char* op;
  int a = kX;
  int b = kNumber;  // used by binary operators only
  float number = 0;
};

// Returns whether the operator is elementwise with two operands.
bool is_binary(std::string_view op);

struct ActivationFormula {
  void (*set)(LayerConfig& layer);
  LayerConfig::KindCase kind;
  std::vector<Term> terms;  // the last one is the result
};
// Returns the formula of the layer, or null if it is not an activation.
const ActivationFormula* formula_of(const LayerConfig& layer);

// The values of a function of one number at a few points, enough to distinguish the functions that
// occur.
using Probe = std::array<double, 12>;
// Returns the points, which is also the probe of the identity.
const Probe& probe_points();
Probe constant_probe(double value);
// Applies an operator to probes. Returns nullopt if formulas do not contain such an operator.
std::optional<Probe> compute(std::string_view op, std::span<const Probe> inputs);
// Returns the activation with this probe, or null if there is none.
const ActivationFormula* formula_that_computes(const Probe& probe);
// Returns whether the probe is that of the identity.
bool is_identity(const Probe& probe);

}  // namespace trireme::model::onnx
