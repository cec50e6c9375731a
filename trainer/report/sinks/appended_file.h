// A file that records are appended to. A run that resumes from a checkpoint truncates it after the
// records that belong to that checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::train {

// The step that a line of text belongs to.
struct LineStep {
  int64_t step = 0;
  bool late = false;  // may come after lines of later steps
};
// Returns the step of a line (without its newline), or nullopt if the line is incomplete.
using ParseLine = std::function<std::optional<LineStep>(std::string_view)>;

// Returns the size of the part of the file that holds lines up to `keep_through_step`, or 0 if
// there is no such file. Throws Error if the file cannot be read.
size_t bytes_through_step(const std::filesystem::path& path, int64_t keep_through_step,
                          const ParseLine& parse);

// Not thread-safe. Used by the sinks that write files.
class AppendedFile {
 public:
  static constexpr size_t kAll = static_cast<size_t>(-1);

  // Opens or creates the file and truncates it to `keep_bytes`. With kAll the file is not
  // truncated, and other processes may append to it as well. Throws Error if the file cannot be
  // opened.
  AppendedFile(const std::filesystem::path& path, size_t keep_bytes);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // Returns the buffer. Its content is appended to the file by flush().
  std::string& buffer() { return buffer_; }
  // Throws Error, which names the file, if the buffer cannot be written.
  void flush();

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::string buffer_;
};

}  // namespace trireme::train
