// Writes a tar file (ustar).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

namespace trireme::data {

// The same members give the same bytes: there are no times and no owners. (libarchive's writer
// gives other bytes: it ends numbers of a header with a blank.) Throws Error as NewFile does.
class TarWriter {
 public:
  explicit TarWriter(const std::string& path) : file_(path) {}

  // `name` of at most 100 bytes, `bytes` of less than 8 GiB.
  void add(std::string_view name, std::span<const uint8_t> bytes);
  // So far; the zeros that end a tar come on top.
  uint64_t bytes() const { return bytes_; }
  // On disk, under its name, when this returns.
  void finish();

  // What a member takes, its header included.
  static uint64_t bytes_of(uint64_t member);

 private:
  void write(std::span<const uint8_t> bytes);
  void flush();

  NewFile file_;
  std::vector<uint8_t> buffer_;
  uint64_t bytes_ = 0;
};

}  // namespace trireme::data
