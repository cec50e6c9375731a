// Writes tar files (ustar).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

namespace trireme::data {

// Writes one tar file. The same members always produce the same bytes, since times and owners are
// not stored. (The bytes differ from those of libarchive's writer, which terminates the numeric
// fields of a header with a space.) All functions throw Error as NewFile does.
class TarWriter {
 public:
  explicit TarWriter(const std::string& path) : file_(path) {}

  // Requires a name of at most 100 bytes and less than 8 GiB of data; throws Error otherwise.
  void add(std::string_view name, std::span<const uint8_t> bytes);
  // Returns the bytes written so far; until finish(), without the end-of-archive marker.
  uint64_t bytes() const { return bytes_; }
  // Writes the end of the archive, and makes the file durable and visible under its name.
  void finish();

  // Returns the size of a member of `member` bytes in the archive, including its header.
  static uint64_t bytes_of(uint64_t member);

 private:
  void write(std::span<const uint8_t> bytes);
  void flush();

  NewFile file_;
  std::vector<uint8_t> buffer_;
  uint64_t bytes_ = 0;
};

}  // namespace trireme::data
