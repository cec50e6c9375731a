// Recognizes files that are not of the expected format, for error messages.
#pragma once

#include <filesystem>
#include <string_view>

namespace trireme {

// Returns the name of the format that begins with these bytes ("GIF"), or "" if it is unknown.
std::string_view format_of(std::string_view bytes);

// Likewise, for a file. Returns "" if it cannot be read, too.
std::string_view format_of_file(const std::filesystem::path& path);

}  // namespace trireme
