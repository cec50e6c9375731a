// Which files are pictures, by their names.
#pragma once

#include <string_view>

namespace trireme::data {

inline constexpr std::string_view kPictureExtensions = ".jpg, .jpeg or .png";

// Without the dot, in any case.
bool is_picture_extension(std::string_view extension);
// By what follows the last dot.
bool has_picture_name(std::string_view file);

}  // namespace trireme::data
