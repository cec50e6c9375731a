// Recognizes image files by their names.
#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

inline constexpr std::string_view kImageExtensions = ".jpg, .jpeg or .png";

// Returns true for "jpg", "jpeg" and "png" in lower, upper or mixed case, without the dot.
bool is_image_extension(std::string_view extension);
// Throws DataError if folders of images are nested more than 32 deep, as by a link to a parent
// folder.
void check_folder_depth(const std::string& path, int depth);
// Returns true if the text after the last dot of the name is an image extension.
bool has_image_name(std::string_view file);

}  // namespace trireme::data
