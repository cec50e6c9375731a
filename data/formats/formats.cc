#include "data/formats/formats.h"

#include <fmt/format.h>

#include <span>

#include "core/error.h"

namespace trireme::data {

Shape checked_shape(const google::protobuf::RepeatedField<int64_t>& extents,
                    const std::string& path) {
  if (extents.size() != 1 && extents.size() != 3) {
    throw ConfigError(path,
                      fmt::format("has {} extents; it must be [C, H, W] or [F]", extents.size()));
  }
  int64_t elements = 1;
  for (const int64_t extent : extents) {
    if (extent < 1) throw ConfigError(path, fmt::format("{} is less than 1", extent));
    if (__builtin_mul_overflow(elements, extent, &elements) || elements > int64_t{1} << 31) {
      throw ConfigError(path, "a sample would have more than 2^31 elements");
    }
  }
  return Shape(std::span<const int64_t>(extents.data(), extents.size()));
}

int checked_classes(int64_t classes, const std::string& path) {
  if (classes < 2 || classes > kMaxClasses) {
    throw ConfigError(path, fmt::format("{} is not in [2, {}]", classes, kMaxClasses));
  }
  return static_cast<int>(classes);
}

int64_t checked_length(int64_t length, const std::string& path) {
  constexpr int64_t kMax = 1 << 24;
  if (length >= 1 && length <= kMax) return length;
  throw ConfigError(path, fmt::format("{} is not in [1, {}]", length, kMax));
}

SampleSpec token_spec(int64_t length, int64_t vocabulary) {
  SampleSpec spec;
  spec.input = {DType::kI32, Shape{length}, Layout::row_major()};
  spec.target = spec.input;
  spec.classes = static_cast<int>(vocabulary);
  return spec;
}

File read_for(const BadRecordPolicy& policy, const std::string& path, const SizeFromHead& size_of) {
  return read_file(path, policy.skips() ? OnDamage::kReadUpToDamage : OnDamage::kThrow, size_of);
}

std::optional<int32_t> checked_label(uint8_t label, int classes, const std::string& file,
                                     int64_t record, const std::string& field,
                                     BadRecordPolicy& policy) {
  if (label < classes) return label;
  policy.add(DataError(fmt::format("{}: record {}", file, record),
                       fmt::format("label {} is not in [0, {}){}", label, classes,
                                   field.empty() ? "" : ", the classes that " + field + " sets")));
  return std::nullopt;
}

}  // namespace trireme::data
