#include "model/onnx/activations.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::model::onnx {
namespace {

using LC = LayerConfig;

constexpr float kSqrtHalf = 0.70710678F;
const float kSqrtTwoOverPi = std::sqrt(2.0F * std::numbers::inv_pi_v<float>);

const std::vector<ActivationFormula>& formulas() {
  constexpr int kX = Term::kX;
  constexpr int kNumber = Term::kNumber;
  static const std::vector<ActivationFormula> all = {
      {[](LC& layer) { layer.mutable_relu(); }, LC::kRelu, {{"Relu"}}},
      {[](LC& layer) { layer.mutable_sigmoid(); }, LC::kSigmoid, {{"Sigmoid"}}},
      {[](LC& layer) { layer.mutable_tanh(); }, LC::kTanh, {{"Tanh"}}},
      {[](LC& layer) { layer.mutable_silu(); }, LC::kSilu, {{"Sigmoid"}, {"Mul", kX, 0}}},
      // x / 2 * (1 + erf(x / sqrt(2)))
      {[](LC& layer) { layer.mutable_gelu(); },
       LC::kGelu,
       {{"Mul", kX, kNumber, kSqrtHalf},
        {"Erf", 0},
        {"Add", 1, kNumber, 1},
        {"Mul", kX, 2},
        {"Mul", 3, kNumber, 0.5F}}},
      // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
      {[](LC& layer) { layer.mutable_gelu_tanh(); },
       LC::kGeluTanh,
       {{"Mul", kX, kX},
        {"Mul", 0, kX},
        {"Mul", 1, kNumber, 0.044715F},
        {"Add", kX, 2},
        {"Mul", 3, kNumber, kSqrtTwoOverPi},
        {"Tanh", 4},
        {"Add", 5, kNumber, 1},
        {"Mul", kX, 6},
        {"Mul", 7, kNumber, 0.5F}}},
  };
  return all;
}

struct Unary {
  std::string_view op;
  double (*compute)(double);
};
constexpr Unary kUnary[] = {
    {"Relu", [](double x) { return std::max(x, 0.0); }},
    {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"Tanh", [](double x) { return std::tanh(x); }},
    {"Erf", [](double x) { return std::erf(x); }},
    {"Neg", [](double x) { return -x; }},
    {"Exp", [](double x) { return std::exp(x); }},
    {"Sqrt", [](double x) { return std::sqrt(x); }},
};
struct Binary {
  std::string_view op;
  double (*compute)(double, double);
};
constexpr Binary kBinary[] = {
    {"Add", [](double a, double b) { return a + b; }},
    {"Sub", [](double a, double b) { return a - b; }},
    {"Mul", [](double a, double b) { return a * b; }},
    {"Div", [](double a, double b) { return a / b; }},
    {"Pow", [](double a, double b) { return std::pow(a, b); }},
};

// Compares with a tolerance for f32 constants that exporters round differently.
bool same(const Probe& a, const Probe& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= 1e-5 * (1 + std::abs(b[i])))) return false;
  }
  return true;
}

Probe probe_of(const ActivationFormula& formula) {
  std::vector<Probe> results;
  for (const Term& term : formula.terms) {
    const auto operand = [&](int which) {
      if (which == Term::kX) return probe_points();
      if (which == Term::kNumber) return constant_probe(term.number);
      return results[which];
    };
    std::vector<Probe> inputs{operand(term.a)};
    if (is_binary(term.op)) inputs.push_back(operand(term.b));
    results.push_back(compute(term.op, inputs).value());
  }
  return results.back();
}

}  // namespace

bool is_binary(std::string_view op) {
  return std::any_of(std::begin(kBinary), std::end(kBinary),
                     [&](const Binary& binary) { return binary.op == op; });
}

const ActivationFormula* formula_of(const LayerConfig& layer) {
  for (const ActivationFormula& formula : formulas()) {
    if (formula.kind == layer.kind_case()) return &formula;
  }
  return nullptr;
}

const Probe& probe_points() {
  static const Probe points = {-6.5, -3.1, -1.7, -0.9, -0.33, -0.05, 0.04, 0.4, 0.8, 1.9, 3.3, 5.7};
  return points;
}

Probe constant_probe(double value) {
  Probe probe;
  probe.fill(value);
  return probe;
}

std::optional<Probe> compute(std::string_view op, std::span<const Probe> inputs) {
  Probe result{};
  for (const Unary& unary : kUnary) {
    if (unary.op != op || inputs.size() != 1) continue;
    for (size_t i = 0; i < result.size(); ++i) result[i] = unary.compute(inputs[0][i]);
    return result;
  }
  for (const Binary& binary : kBinary) {
    if (binary.op != op || inputs.size() != 2) continue;
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = binary.compute(inputs[0][i], inputs[1][i]);
    }
    return result;
  }
  return std::nullopt;
}

const ActivationFormula* formula_that_computes(const Probe& probe) {
  static const std::vector<Probe> known = [] {
    std::vector<Probe> probes;
    for (const ActivationFormula& formula : formulas()) probes.push_back(probe_of(formula));
    return probes;
  }();
  for (size_t i = 0; i < known.size(); ++i) {
    if (same(probe, known[i])) return &formulas()[i];
  }
  return nullptr;
}

bool is_identity(const Probe& probe) { return same(probe, probe_points()); }

}  // namespace trireme::model::onnx
