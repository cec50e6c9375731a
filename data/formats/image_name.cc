#include "data/formats/image_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace trireme::data {

void check_folder_depth(const std::string& path, int depth) {
  constexpr int kMaxDepth = 32;
  if (depth <= kMaxDepth) return;
  throw DataError(path, fmt::format("folders are nested more than {} deep; is there a link to a "
                                    "parent folder?",
                                    kMaxDepth));
}

bool is_image_extension(std::string_view extension) {
  constexpr std::array<std::string_view, 3> kAll{"jpg", "jpeg", "png"};
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::any_of(kAll, [&](std::string_view known) {
    return std::ranges::equal(extension, known, {}, small);
  });
}

bool has_image_name(std::string_view file) {
  const size_t dot = file.rfind('.');
  return dot != file.npos && is_image_extension(file.substr(dot + 1));
}

}  // namespace trireme::data
