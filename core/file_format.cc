#include "core/file_format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>

namespace trireme {
namespace {

using namespace std::string_view_literals;

struct Signature {
  size_t offset;
  std::string_view bytes;
  std::string_view name;
};
constexpr size_t kLongest = 64;  // bytes that a signature reaches

constexpr std::array kSignatures = {
    Signature{0, "GIF8"sv, "GIF"},
    Signature{8, "WEBP"sv, "WebP"},
    Signature{0, "II*\0"sv, "TIFF"},
    Signature{0, "MM\0*"sv, "TIFF"},
    Signature{0, "BM"sv, "BMP"},
    Signature{4, "ftypavif"sv, "AVIF"},
    Signature{4, "ftyphei"sv, "HEIC"},
    Signature{4, "jP  "sv, "JPEG 2000"},
    Signature{0, "\xFF\x0A"sv, "JPEG XL"},
    Signature{4, "JXL "sv, "JPEG XL"},
    Signature{0, "\x1F\x8B"sv, "gzip"},
    Signature{0, "PK\3\4"sv, "ZIP"},
    Signature{0, "%PDF"sv, "PDF"},
    Signature{0, "<svg"sv, "SVG"},
    Signature{0, "<?xml"sv, "XML"},
    Signature{0, "<!DOCTYPE"sv, "HTML"},
    Signature{0, "<!doctype"sv, "HTML"},
    Signature{0, "<html"sv, "HTML"},
    Signature{0, "<HTML"sv, "HTML"},
    Signature{0, "version https://git-lfs"sv,
              "a Git LFS pointer (run 'git lfs pull' to get the file)"},
};

}  // namespace

std::string_view format_of(std::string_view bytes) {
  for (const Signature& signature : kSignatures) {
    if (bytes.size() > signature.offset &&
        bytes.substr(signature.offset).starts_with(signature.bytes)) {
      return signature.name;
    }
  }
  return {};
}

std::string_view format_of_file(const std::filesystem::path& path) {
  std::array<char, kLongest> bytes;
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), bytes.size());
  return format_of(
      {bytes.data(), static_cast<size_t>(std::max<std::streamsize>(0, file.gcount()))});
}

}  // namespace trireme
