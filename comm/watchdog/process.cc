#include "comm/watchdog/process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "core/interrupted.h"

namespace trireme::comm {
namespace {

constexpr int kParentField = 4;
constexpr int kStartedField = 22;

}  // namespace

std::optional<ProcessStat> read_stat(pid_t pid) noexcept {
  std::array<char, 32> path = {"/proc/self/stat"};
  if (pid != 0) std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid);
  const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::array<char, 1024> buffer;
  const ssize_t length =
      retry_interrupted([&] { return read(file, buffer.data(), buffer.size()); });
  close(file);
  const std::string_view text(buffer.data(), length > 0 ? static_cast<size_t>(length) : 0);
  // "PID (NAME) STATE PARENT ...": a name may hold anything, parentheses and spaces too.
  const size_t begin = text.find('(');
  const size_t end = text.rfind(')');
  if (begin == std::string_view::npos || end == std::string_view::npos || end + 4 > text.size()) {
    return {};
  }
  ProcessStat stat;
  text.substr(begin + 1, end - begin - 1).copy(stat.name.data(), stat.name.size() - 1);
  stat.state = text[end + 2];
  std::string_view rest = text.substr(end + 4);
  for (int field = kParentField; field <= kStartedField; ++field) {
    const char* const last = rest.data() + rest.size();
    if (field == kParentField) std::from_chars(rest.data(), last, stat.parent);
    if (field == kStartedField) std::from_chars(rest.data(), last, stat.started);
    rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1);
  }
  return stat;
}

uint64_t own_pid_namespace() noexcept {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

}  // namespace trireme::comm
