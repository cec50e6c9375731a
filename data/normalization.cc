#include "data/normalization.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"

namespace trireme::data {
namespace {

std::vector<float> per_channel(const google::protobuf::RepeatedField<float>& values, float unset,
                               const SampleSpec& spec, const std::string& path) {
  if (values.empty()) return {unset};
  const int64_t channels = spec.input.shape[0];
  if (values.size() != 1 && values.size() != channels) {
    throw ConfigError(path, fmt::format("has {} values; give 1 or {}, as samples are {}",
                                        values.size(), channels, spec.input.shape.to_string()));
  }
  for (const float value : values) {
    if (!std::isfinite(value)) throw ConfigError(path, fmt::format("{} is not finite", value));
  }
  return {values.begin(), values.end()};
}

}  // namespace

void set_normalization(const DataConfig& config, SampleSpec& spec) {
  if (config.has_csv()) spec.scale = config.csv().scale();
  if (config.has_npy() && spec.input.dtype != DType::kU8) spec.scale = config.npy().scale();
  if (config.has_normalize() && spec.input.dtype == DType::kI32) {
    throw ConfigError("data.normalize", "cannot be used with tokens");
  }
  spec.mean = per_channel(config.normalize().mean(), 0, spec, "data.normalize.mean");
  spec.stddev = per_channel(config.normalize().std(), 1, spec, "data.normalize.std");
  for (const float value : spec.stddev) {
    if (!(value > 0))
      throw ConfigError("data.normalize.std", fmt::format("{} is not above 0", value));
  }
}

}  // namespace trireme::data
