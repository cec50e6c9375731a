// Expected images, produced by Pillow and torchvision with tests/golden/make_images.py.
#pragma once

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

#include "core/error.h"
#include "data/files/file.h"
#include "tests/data/images.h"

namespace trireme::testing {

// Reads all images, by name.
inline std::map<std::string, TestImage> read_goldens() {
  const data::File file = data::read_file(TRIREME_SOURCE "/tests/golden/images.gz");
  std::map<std::string, TestImage> goldens;
  for (auto at = file.bytes.begin(); at != file.bytes.end();) {
    const auto line_end = std::find(at, file.bytes.end(), '\n');
    std::istringstream line(std::string(at, line_end));
    std::string name;
    int channels = 0;
    data::ImageSize size;
    line >> name >> channels >> size.height >> size.width;
    TestImage image(size, channels);
    if (!line || file.bytes.end() - line_end <= std::ssize(image.pixels)) {
      throw Error("images.gz is truncated at " + name);
    }
    at = line_end + 1;
    std::copy_n(at, image.pixels.size(), image.pixels.begin());
    at += std::ssize(image.pixels);
    goldens.emplace(name, std::move(image));
  }
  return goldens;
}

inline const TestImage& golden(const std::string& name) {
  static const std::map<std::string, TestImage> goldens = read_goldens();
  const auto found = goldens.find(name);
  if (found == goldens.end()) throw Error("no golden image has the name " + name);
  return found->second;
}

}  // namespace trireme::testing
