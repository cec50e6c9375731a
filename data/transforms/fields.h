// Fields that several transforms have, checked: ConfigError("PATH: ..."), where `path` ends in the
// field's name.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <string>

#include "data/data.pb.h"
#include "data/images/image.h"
#include "data/images/resize.h"

namespace trireme::data {

using Extents = google::protobuf::RepeatedField<int32_t>;

// One number, which must be given, or height and width: each in [1, 65535].
ImageSize checked_size(const Extents& size, const std::string& path);
// In [least, most].
float checked_number(float value, float least, float most, const std::string& path);
int checked_integer(int32_t value, int least, int most, const std::string& path);
// In [0, 1].
float checked_probability(float probability, const std::string& path);
// A byte.
uint8_t checked_fill(int32_t fill, const std::string& path);
// In [0, 65535].
int checked_padding(int32_t padding, const std::string& path);
// 0 < min <= max; `path` ends where "min_" or "max_" would follow. `most`: of max.
struct Range {
  float min = 0;
  float max = 0;
};
Range checked_range(float min, float max, float most, const std::string& path,
                    const std::string& name);
Filter filter_of(Interpolation interpolation);

}  // namespace trireme::data
