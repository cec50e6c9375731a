// Validation of configuration fields that several transforms share. Each function returns the value
// if it is valid and otherwise throws ConfigError naming `path`, the full name of the field.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <string>

#include "data/data.pb.h"
#include "data/images/image.h"
#include "data/images/resize.h"

namespace trireme::data {

using Extents = google::protobuf::RepeatedField<int32_t>;

// Requires one number for both sides, or height and width, each in [1, 65535].
ImageSize checked_size(const Extents& size, const std::string& path);
// Require a value in [min, max].
float checked_number(float value, float min, float max, const std::string& path);
int checked_integer(int32_t value, int min, int max, const std::string& path);
// Requires a value in [0, 1].
float checked_probability(float probability, const std::string& path);
// Requires a value in [0, 255].
uint8_t checked_fill(int32_t fill, const std::string& path);
// Requires a value in [0, 65535].
int checked_padding(int32_t padding, const std::string& path);
struct Range {
  float min = 0;
  float max = 0;
};
// Checks that 0 < min <= max <= limit. The fields are PATH.min_NAME and PATH.max_NAME.
Range checked_range(float min, float max, float limit, const std::string& path,
                    const std::string& name);
Filter filter_of(Interpolation interpolation);

}  // namespace trireme::data
