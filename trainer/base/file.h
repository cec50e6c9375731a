// Files that must be whole on disk, or not be there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>

namespace trireme {

// Memory that begins at a multiple of it can be written past the page cache.
inline constexpr size_t kDirectAlignment = 4096;

// What a file should be: its size and XXH3 (64 bits).
struct FileDigest {
  uint64_t bytes = 0;
  uint64_t hash = 0;
  bool operator==(const FileDigest&) const = default;
};

// A new file, written in order. Every failure throws Error naming the file and the cause; so does
// being told to stop.
class DurableFile {
 public:
  explicit DurableFile(const std::filesystem::path& path, std::stop_token stop = {});
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(std::span<const std::byte> data);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  FileDigest digest() const;  // of what was written so far
  // On disk when this returns.
  void finish();

 private:
  void write_block(std::span<const std::byte> block);

  std::filesystem::path path_;
  std::stop_token stop_;
  int file_;
  uint64_t bytes_ = 0;
  void* hash_;
};

void write_durably(const std::filesystem::path& path, const std::string& text);
// Through a temporary file, PATH.tmp: readers see the old text or the new.
inline constexpr const char* kTemporaryText = ".tmp";
void replace_durably(const std::filesystem::path& path, const std::string& text);
// Atomic, but not on disk before sync_folder.
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
// The folder and those above it, as far as they are missing. Throws Error.
void create_folders(const std::filesystem::path& path);
// Makes names created or renamed in the folder last.
void sync_folder(const std::filesystem::path& path);

// Throws DataError when it cannot be read.
FileDigest digest_of(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path);

}  // namespace trireme
