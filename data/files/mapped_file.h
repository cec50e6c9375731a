// A whole file as memory that is read when it is first touched.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace trireme::data {

// Whoever shortens the file while it is mapped ends the process (SIGBUS); it may be deleted.
class MappedFile {
 public:
  // Throws DataError when it is no file or cannot be read.
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
