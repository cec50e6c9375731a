// The file, or standard output, that a command writes results to.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace trireme::cli {

// Throws ConfigError if the output of a command is its input, which would be lost.
inline void require_another_file(const std::string& out, const std::string& input) {
  std::error_code none;
  if (out.empty() || input.empty() || !std::filesystem::equivalent(input, out, none)) return;
  throw ConfigError("--out", fmt::format("{} is also an input, which would be lost", input));
}

class OutputFile {
 public:
  // Creates the file; an empty path is standard output. All functions throw Error that names the
  // file if it cannot be written.
  explicit OutputFile(std::string path)
      : path_(std::move(path)), file_(path_.empty() ? stdout : std::fopen(path_.c_str(), "w")) {
    if (!file_) throw failure();
  }
  ~OutputFile() {
    if (!path_.empty() && file_) std::fclose(file_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) throw failure();
  }
  // Makes what has been written visible to readers.
  void flush() {
    if (std::fflush(file_) != 0 || std::ferror(file_) != 0) throw failure();
  }
  // Call at the end, since the last bytes may not have been written yet.
  void finish() {
    flush();
    if (!path_.empty() && std::fclose(std::exchange(file_, nullptr)) != 0) throw failure();
  }

 private:
  Error failure() const {
    return Error(fmt::format("{}: cannot be written: {}", path_.empty() ? "stdout" : path_,
                             std::strerror(errno)));
  }

  const std::string path_;
  std::FILE* file_;
};

}  // namespace trireme::cli
