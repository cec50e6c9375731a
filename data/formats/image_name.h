// Recognizes image files by their names.
#pragma once

#include <string_view>

namespace trireme::data {

inline constexpr std::string_view kImageExtensions = ".jpg, .jpeg or .png";

// Returns true for "jpg", "jpeg" and "png" in lower, upper or mixed case, without the dot.
bool is_image_extension(std::string_view extension);
// Returns true if the text after the last dot of the name is an image extension.
bool has_image_name(std::string_view file);

}  // namespace trireme::data
