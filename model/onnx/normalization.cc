#include "model/onnx/normalization.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/error.h"

namespace trireme::model::onnx {
namespace {

bool all(const std::vector<float>& values, float value) {
  return std::all_of(values.begin(), values.end(), [value](float v) { return v == value; });
}

// Combines two lists elementwise; a list of one value applies to all channels. Returns an empty
// list if the sizes differ.
template <class Combine>
std::vector<float> each(const std::vector<float>& a, const std::vector<float>& b, Combine combine) {
  if (a.size() != b.size() && a.size() != 1 && b.size() != 1) return {};
  std::vector<float> result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = combine(a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]);
  }
  return result;
}

// Appends x -> x * values, or x -> x / values.
bool multiply(InputNormalization& n, const std::vector<float>& values, bool divide) {
  const auto combine = [divide](float own, float by) { return divide ? own / by : own * by; };
  if (values.size() == 1 && all(n.mean, 0) && all(n.stddev, 1)) {
    n.scale = combine(n.scale, values[0]);
    return true;
  }
  n.stddev = each(n.stddev, values,
                  [divide](float own, float by) { return divide ? own * by : own / by; });
  return !n.stddev.empty();
}

// Appends x -> x - values.
bool subtract(InputNormalization& n, const std::vector<float>& values) {
  const std::vector<float> shift = each(values, n.stddev, std::multiplies<float>());
  n.mean = each(n.mean, shift, std::plus<float>());
  return !n.mean.empty();
}

}  // namespace

bool append_operator(InputNormalization& normalization, std::string_view op,
                     const std::vector<float>& values, bool reversed) {
  if (values.empty()) return false;
  if (op == "Mul" || (op == "Div" && !reversed)) {
    const auto is_factor = [](float value) { return value > 0 && std::isnormal(value); };
    return std::ranges::all_of(values, is_factor) && multiply(normalization, values, op == "Div");
  }
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return false;
  std::vector<float> negative = values;
  for (float& value : negative) value = -value;
  if (op == "Add") return subtract(normalization, negative);
  if (op == "Sub" && !reversed) return subtract(normalization, values);
  return false;
}

}  // namespace trireme::model::onnx

namespace trireme::model {

bool is_identity(const InputNormalization& n) {
  return n.scale == 1 && onnx::all(n.mean, 0) && onnx::all(n.stddev, 1);
}

InputNormalization chained(const InputNormalization& first, const InputNormalization& second) {
  InputNormalization both = first;
  const bool fits = onnx::multiply(both, {second.scale}, /*divide=*/false) &&
                    onnx::subtract(both, second.mean) &&
                    onnx::multiply(both, second.stddev, /*divide=*/true);
  if (!fits) throw Error("the normalizations have different numbers of channels");
  return both;
}

}  // namespace trireme::model
