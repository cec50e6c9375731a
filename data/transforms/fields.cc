#include "data/transforms/fields.h"

#include <fmt/format.h>

#include "core/error.h"

namespace trireme::data {
namespace {

constexpr int kMaxExtent = 65535;

void check_within(double value, double low, double high, const std::string& path) {
  if (value >= low && value <= high) return;  // false for NaN
  throw ConfigError(path, fmt::format("{} is not in [{}, {}]", value, low, high));
}

}  // namespace

ImageSize checked_size(const Extents& size, const std::string& path) {
  if (size.empty() || size.size() > 2) {
    throw ConfigError(path,
                      fmt::format("has {} values; give one, or height and width", size.size()));
  }
  for (const int32_t extent : size) check_within(extent, 1, kMaxExtent, path);
  return {size[0], size[size.size() - 1]};
}

float checked_number(float value, float min, float max, const std::string& path) {
  if (value >= min && value <= max) return value;  // false for NaN
  throw ConfigError(path, fmt::format("{} is not in [{}, {}]", value, min, max));
}

int checked_integer(int32_t value, int min, int max, const std::string& path) {
  check_within(value, min, max, path);
  return value;
}

float checked_probability(float probability, const std::string& path) {
  check_within(static_cast<double>(probability), 0, 1, path);
  return probability;
}

uint8_t checked_fill(int32_t fill, const std::string& path) {
  check_within(fill, 0, 255, path);
  return static_cast<uint8_t>(fill);
}

int checked_padding(int32_t padding, const std::string& path) {
  check_within(padding, 0, kMaxExtent, path);
  return padding;
}

Range checked_range(float min, float max, float limit, const std::string& path,
                    const std::string& name) {
  if (!(min > 0)) {
    throw ConfigError(fmt::format("{}.min_{}", path, name), fmt::format("{} is not above 0", min));
  }
  if (!(max >= min && max <= limit)) {
    throw ConfigError(
        fmt::format("{}.max_{}", path, name),
        fmt::format("{} is not in [min_{}, {}] = [{}, {}]", max, name, limit, min, limit));
  }
  return {min, max};
}

Filter filter_of(Interpolation interpolation) {
  switch (interpolation) {
    case BILINEAR:
      return Filter::kBilinear;
    case BICUBIC:
      return Filter::kBicubic;
    case NEAREST:
      return Filter::kNearest;
  }
  throw Error("unknown interpolation");
}

}  // namespace trireme::data
