#include "trainer/report/sinks/appended_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/error.h"
#include "core/file.h"

namespace trireme::train {

// Lines are in the order of their steps, except late ones, so the search goes backward.
size_t bytes_through_step(const std::filesystem::path& path, int64_t keep_through_step,
                          const ParseLine& parse) {
  std::error_code none;
  if (keep_through_step <= 0 || !std::filesystem::exists(path, none)) return 0;
  const std::string text = read_text(path);
  size_t end = text.rfind('\n');
  end = end == std::string::npos ? 0 : end + 1;  // a line without a newline was cut by a crash
  size_t keep = end;
  while (end > 0) {
    const size_t before = end >= 2 ? text.rfind('\n', end - 2) : std::string::npos;
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    const auto line = parse(std::string_view(text).substr(begin, end - begin - 1));
    if (!line || line->step > keep_through_step) {
      keep = begin;
    } else if (!line->late) {
      return keep;
    }
    end = begin;
  }
  return keep;
}

AppendedFile::AppendedFile(const std::filesystem::path& path, size_t keep_bytes) : path_(path) {
  const bool all = keep_bytes == kAll;
  // O_NONBLOCK: opening a pipe must not block forever.
  file_ =
      ::open(path_.c_str(),
             O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (all ? O_APPEND : 0), 0666);
  if (file_ >= 0 && (all || (::ftruncate(file_, static_cast<off_t>(keep_bytes)) == 0 &&
                             ::lseek(file_, 0, SEEK_END) >= 0))) {
    return;
  }
  const int reason = errno;
  if (file_ >= 0) ::close(file_);
  const char* what =
      reason == ELOOP ? "it is a symbolic link, which is not followed" : std::strerror(reason);
  throw Error(fmt::format("{}: cannot be written: {}", path_.string(), what));
}

AppendedFile::~AppendedFile() { ::close(file_); }

void AppendedFile::flush() {
  if (!write_all(file_, buffer_)) {
    throw Error(fmt::format("{}: cannot be written to: {}", path_.string(), std::strerror(errno)));
  }
  buffer_.clear();
}

}  // namespace trireme::train
