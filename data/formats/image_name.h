// Which files are images, by their names.
#pragma once

#include <string_view>

namespace trireme::data {

inline constexpr std::string_view kImageExtensions = ".jpg, .jpeg or .png";

// Without the dot, in any case.
bool is_image_extension(std::string_view extension);
// By what follows the last dot.
bool has_image_name(std::string_view file);

}  // namespace trireme::data
