// Durable files: after a crash a file is either complete on disk or absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace trireme {

// Alignment in bytes of memory that can be written with O_DIRECT, bypassing the page cache.
inline constexpr size_t kDirectAlignment = 4096;

// The size of a file and its XXH3 hash (64 bits).
struct FileDigest {
  uint64_t bytes = 0;
  uint64_t hash = 0;
  bool operator==(const FileDigest&) const = default;
};

// A new file that is written sequentially. It replaces the content of an existing file, but only
// the name of a link or a pipe. Every method throws Error with the file and the cause if it fails,
// or if `stop` is requested.
class DurableFile {
 public:
  explicit DurableFile(const std::filesystem::path& path, std::stop_token stop = {});
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(std::span<const std::byte> data);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  FileDigest digest() const;  // digest of the data written so far
  // Blocks until the data written so far is on disk.
  void sync();
  // Blocks until the file is on disk, and closes it.
  void finish();

 private:
  friend class NewFile;
  DurableFile(const std::filesystem::path& path, Descriptor file, std::stop_token stop);
  void write_block(std::span<const std::byte> block);

  std::filesystem::path path_;
  std::stop_token stop_;
  Descriptor file_;
  uint64_t bytes_ = 0;
  void* hash_;
};

// The suffix of temporary files.
inline constexpr const char* kTemporarySuffix = ".tmp";

// Replaces a file atomically: the content is written sequentially to a temporary file, which
// finish() renames to PATH, so that readers see either the old or the new file. Several writers of
// one path, in any processes, each have a temporary file of their own, PATH.trireme-N.tmp with the
// first free N; the last one that finishes wins. The file of a killed writer is removed by the next
// writer that needs its name: a lock (flock) that ends with the process shows that it is unused. A
// file that is replaced passes on its permissions. Every method throws Error with the file and the
// cause if it fails.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path);
  // Removes the temporary file if finish() was not called.
  ~NewFile();

  void write(std::span<const std::byte> data) { file_.write(data); }
  void write(const std::string& text) { file_.write(text); }
  // Blocks until the file is on disk under its final name.
  void finish();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  DurableFile file_;  // holds the lock until it is destroyed
  bool finished_ = false;
};

// Writes the file and blocks until it is on disk. Throws Error if that fails.
void write_durably(const std::filesystem::path& path, const std::string& text);
// Replaces the file atomically, as NewFile does. Throws Error if that fails.
void replace_durably(const std::filesystem::path& path, const std::string& text);
// Renames a file atomically. The rename is durable only after sync_folder. Throws Error if it
// fails.
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
// Creates a folder and its missing parents. Throws Error if that fails.
void create_folders(const std::filesystem::path& path);
// Returns true if the path leads to the open file, false if that file has been renamed or removed.
bool is_file_at(int file, const std::filesystem::path& path);
// Opens a folder whose entries will be removed. Throws Error if that fails or if the path is a
// symbolic link, since what it leads to may belong to others.
Descriptor open_own_folder(const std::filesystem::path& path);
// Removes the given files of the folder `name` in `parent`, and then the folder, if they exist and
// permissions allow it; a file or link of this name is removed itself. Returns false if other files
// are left in the folder.
bool remove_folder(const Descriptor& parent, const std::string& name,
                   std::span<const char* const> files);
// Makes files created or renamed in this folder durable (fsync). Throws Error if that fails.
void sync_folder(const std::filesystem::path& path);

// Writes all of `text` to an open file descriptor. Returns false and sets errno if that fails.
bool write_all(int file, std::string_view text);

// Opens a regular file for reading. Throws DataError if that fails.
Descriptor open_to_read(const std::filesystem::path& path);
// Opens the file of this name in an open folder, which may have been renamed; `path` is for errors.
Descriptor open_to_read(const Descriptor& folder, const std::filesystem::path& path);
// Calls take(piece) for each piece of the content in order. Here and below, `path` is the name of
// the open file in errors.
void read_pieces(const Descriptor& file, const std::filesystem::path& path,
                 const std::function<void(std::string_view)>& take);
// Returns the digest of a file. Throws DataError if it cannot be read.
FileDigest digest_of(const Descriptor& file, const std::filesystem::path& path);
FileDigest digest_of(const std::filesystem::path& path);
// Returns the content of a file. Throws DataError if it cannot be read or does not fit into memory.
std::string read_text(const Descriptor& file, const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path);

}  // namespace trireme
