#include "launch/output_file.h"

#include <fmt/format.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "trainer/config/input_files.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBuffered = 1 << 20;

[[noreturn]] void refuse(const std::string& out, const std::string& input) {
  throw ConfigError("output " + out,
                    fmt::format("{} is also an input, which would be lost", input));
}

// Returns whether the path leads to something that is written to and not replaced: a pipe, a
// terminal, or what /dev/stderr and /dev/fd/3 are.
bool is_stream(const fs::path& path) {
  const std::string folder = (path.parent_path() / "").lexically_normal().string();
  std::error_code none;
  return folder.starts_with("/dev/") || folder.starts_with("/proc/") ||
         (fs::exists(path, none) && !fs::is_regular_file(path, none));
}

}  // namespace

void require_another_file(const std::string& out, const std::string& input) {
  std::error_code none;
  if (out.empty() || input.empty() || !fs::equivalent(input, out, none)) return;
  refuse(out, input);
}

void require_another_file(const std::string& out, const train::RunFolder& run) {
  if (!out.empty() && run.has(out)) refuse(out, "this file of the run " + run.path.string());
}

void require_another_file(const std::string& out, const RunConfig& config) {
  const std::string input = out.empty() ? "" : train::input_at(out, config);
  if (!input.empty()) refuse(out, input);
}

OutputFile::OutputFile(const std::string& path) : name_(path) {
  struct stat out {};
  struct stat found {};
  const bool is_stdout = path.empty() || path == "-" ||
                         (::fstat(STDOUT_FILENO, &out) == 0 && ::stat(path.c_str(), &found) == 0 &&
                          out.st_dev == found.st_dev && out.st_ino == found.st_ino);
  if (is_stdout) {
    name_ = "stdout";
    stream_ = stdout;
  } else if (is_stream(path)) {
    stream_ = std::fopen(path.c_str(), "a");
    if (!stream_) throw failure();
  } else {
    if (::access(path.c_str(), F_OK) == 0 && ::access(path.c_str(), W_OK) != 0) throw failure();
    std::error_code none;
    file_.emplace(fs::is_symlink(path, none) ? fs::weakly_canonical(path) : fs::path(path));
  }
}

OutputFile::~OutputFile() {
  if (stream_ && stream_ != stdout) std::fclose(stream_);
}

void OutputFile::write(const std::string& text) {
  if (stream_) {
    if (std::fwrite(text.data(), 1, text.size(), stream_) != text.size()) throw failure();
    return;
  }
  buffer_ += text;
  if (buffer_.size() < kBuffered) return;
  file_->write(buffer_);
  buffer_.clear();
}

void OutputFile::flush() {
  if (stream_ && (std::fflush(stream_) != 0 || std::ferror(stream_) != 0)) throw failure();
}

void OutputFile::finish() {
  if (!stream_) {
    file_->write(buffer_);
    return file_->finish();
  }
  flush();
  if (stream_ != stdout && std::fclose(std::exchange(stream_, stdout)) != 0) throw failure();
}

Error OutputFile::failure() const {
  const int reason = errno;
  if (stream_ == stdout) {  // so that main does not report it again
    ::__fpurge(stdout);
    std::clearerr(stdout);
  }
  return Error(fmt::format("{}: cannot be written: {}", name_, std::strerror(reason)));
}

}  // namespace trireme::cli
