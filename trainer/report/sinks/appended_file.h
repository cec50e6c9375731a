// A file that grows, of which a run that goes on keeps what belongs to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::train {

// Where a line of text belongs.
struct LineStep {
  int64_t step = 0;
  bool late = false;  // may stand after lines of later steps
};
// Of a line without its end; nothing when it is not whole.
using ParseLine = std::function<std::optional<LineStep>(std::string_view)>;

// How much of a file, which need not be there, is up to that step; 0: nothing. Throws Error when it
// cannot be read.
size_t kept_bytes(const std::filesystem::path& path, int64_t keep_through_step,
                  const ParseLine& parse);

class AppendedFile {
 public:
  static constexpr size_t kAll = static_cast<size_t>(-1);

  // Cuts off what a file that is there has beyond `keep_bytes`; with kAll others may append to it
  // too. Throws Error.
  AppendedFile(const std::filesystem::path& path, size_t keep_bytes);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // What is to be appended...
  std::string& buffer() { return buffer_; }
  // ...by this. Throws Error naming the file; what could not be written is lost.
  void flush();

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::string buffer_;
};

}  // namespace trireme::train
