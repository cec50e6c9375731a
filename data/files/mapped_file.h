// A memory-mapped file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace trireme::data {

// A read-only mapping of a file. If another process truncates the file while it is mapped, accesses
// beyond its new end kill this process (SIGBUS). Deleting the file is safe.
class MappedFile {
 public:
  // Throws DataError if the path is not a regular file or cannot be read.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const uint8_t> bytes_;
};

}  // namespace trireme::data
