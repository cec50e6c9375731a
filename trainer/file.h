// Files that must be whole on disk, or not be there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace trireme {

// What a file should be: its size and XXH3 (64 bits).
struct FileDigest {
  uint64_t bytes = 0;
  uint64_t hash = 0;
  bool operator==(const FileDigest&) const = default;
};

// A new file, written in order. Every failure throws Error naming the file and the cause.
class DurableFile {
 public:
  explicit DurableFile(const std::filesystem::path& path);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(const void* data, size_t bytes);
  // On disk when this returns.
  FileDigest finish();

 private:
  std::filesystem::path path_;
  int file_;
  uint64_t bytes_ = 0;
  void* hash_;
};

FileDigest write_durably(const std::filesystem::path& path, const std::string& text);
// Through a temporary file: readers see the old text or the new.
void replace_durably(const std::filesystem::path& path, const std::string& text);
// Makes names created or renamed in the folder last.
void sync_folder(const std::filesystem::path& path);

// Throws DataError when it cannot be read.
FileDigest digest_of(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path);

}  // namespace trireme
