#include "model/layers/common.h"

#include <fmt/format.h>

#include <cmath>

namespace trireme::model {
namespace {

constexpr int64_t kMaxWindow = 1 << 30;  // so that products of two do not overflow

}  // namespace

void require_inputs(std::span<const Shape> inputs, size_t count) {
  if (inputs.size() != count) {
    throw Error(
        fmt::format("reads {} input{}, but has {}", count, count == 1 ? "" : "s", inputs.size()));
  }
}

void require_rank(const Shape& shape, int rank, const char* meaning) {
  if (shape.rank() != rank) {
    throw Error(fmt::format("requires an input of shape {}, got {}", meaning, shape.to_string()));
  }
}

void require_features(const Shape& shape) {
  if (shape.rank() == 1 || shape.rank() == 2) return;
  throw Error(fmt::format("requires an input of shape [F], or [T, F] for a sequence, got {}",
                          shape.to_string()));
}

std::array<int64_t, 2> height_width(const google::protobuf::RepeatedField<int64_t>& numbers,
                                    std::array<int64_t, 2> fallback, const char* field,
                                    int64_t lowest) {
  if (numbers.size() > 2) {
    throw Error(
        fmt::format("{}: has {} numbers; give one, or height and width", field, numbers.size()));
  }
  std::array<int64_t, 2> pair = fallback;
  if (!numbers.empty()) pair = {numbers[0], numbers[numbers.size() - 1]};
  for (int64_t number : pair) {
    if (number < lowest) {
      throw Error(fmt::format("{}: must be at least {}, got {}", field, lowest, number));
    }
    if (number > kMaxWindow) {
      throw Error(fmt::format("{}: must be at most {}, got {}", field, kMaxWindow, number));
    }
  }
  return pair;
}

Initializer initializer(const InitializerConfig& config, int64_t fan_in, int64_t fan_out) {
  using Kind = Initializer::Kind;
  const auto in = static_cast<float>(fan_in);
  const auto out = static_cast<float>(fan_out);
  const auto kaiming = [&](const ScaledInit& init) {
    const float gain = init.has_gain() ? init.gain() : std::sqrt(2.0f);
    return gain / std::sqrt(init.fan_out() ? out : in);
  };
  const auto xavier = [&](const ScaledInit& init) {
    return (init.has_gain() ? init.gain() : 1.0f) * std::sqrt(2.0f / (in + out));
  };
  const float kUniformOverStddev = std::sqrt(3.0f);
  switch (config.kind_case()) {
    case InitializerConfig::kKaimingNormal:
      return {Kind::kNormal, 0, kaiming(config.kaiming_normal())};
    case InitializerConfig::kKaimingUniform:
      return {Kind::kUniform, 0, kaiming(config.kaiming_uniform()) * kUniformOverStddev};
    case InitializerConfig::kXavierNormal:
      return {Kind::kNormal, 0, xavier(config.xavier_normal())};
    case InitializerConfig::kXavierUniform:
      return {Kind::kUniform, 0, xavier(config.xavier_uniform()) * kUniformOverStddev};
    case InitializerConfig::kNormal:
      return {Kind::kNormal, config.normal().mean(), config.normal().std()};
    case InitializerConfig::kConstant:
      return {Kind::kConstant, config.constant().value(), 0};
    case InitializerConfig::KIND_NOT_SET:
      break;
  }
  return {Kind::kUniform, 0, 1.0f / std::sqrt(in)};
}

void declare_scale(Signature& signature, const Shape& shape, const Initializer& scale) {
  signature.parameters.push_back(
      {.name = "weight", .shape = shape, .init = scale, .decays = false, .full_precision = true});
}

void declare_scale_and_shift(Signature& signature, const Shape& shape, const Initializer& scale) {
  declare_scale(signature, shape, scale);
  signature.parameters.push_back(
      {.name = "bias", .shape = shape, .init = {}, .decays = false, .full_precision = true});
}

bool fuse_activation(ops::Activation& own, const Layer& next) {
  const ops::Activation activation = next.as_activation();
  if (own != ops::Activation::kNone || activation == ops::Activation::kNone ||
      !ops::derivative_uses_output(activation)) {
    return false;
  }
  own = activation;
  return true;
}

ValueId backward_through_activation(Emitter& emit, ops::Activation activation, ValueId output,
                                    ValueId dy) {
  if (activation == ops::Activation::kNone) return dy;
  const ValueId before = emit.new_value_like(dy);
  emit.emit(ops::ActivationBackward{activation}, {output, dy, before});
  return before;
}

}  // namespace trireme::model
