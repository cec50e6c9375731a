#include "core/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/file.h"
#include "core/host_name.h"

namespace trireme {
namespace {

constexpr auto kLockTimeout = std::chrono::seconds(3);

// Returns false, with errno set, if the file cannot be locked.
bool lock_with_timeout(int file) {
  const auto end = std::chrono::steady_clock::now() + kLockTimeout;
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    if (std::chrono::steady_clock::now() > end) return errno = EWOULDBLOCK, false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& kind,
                       const std::string& remedy)
    : path_(folder / ".lock"),
      file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666)) {
  if (!file_.is_open()) {
    throw Error(fmt::format("{}: cannot be opened: {}", path_.string(), std::strerror(errno)));
  }
  if (!lock_with_timeout(file_.number())) {
    if (errno != EWOULDBLOCK) {
      problem_ = fmt::format(
          "{}: this file system does not support locks ({}), so a second process could use the "
          "folder",
          path_.string(), std::strerror(errno));
      return;
    }
    const std::string holder = read_text(path_);
    throw Error(fmt::format("{} {} is in use by {}; wait until it ends, or {}", kind,
                            folder.string(), holder.empty() ? "another process" : holder, remedy));
  }
  const std::string holder = fmt::format("process {} on {}", ::getpid(), host_name());
  // The holder is only for the message of another process; writing may fail if the disk is full.
  const bool written = ::ftruncate(file_.number(), 0) == 0 &&
                       ::pwrite(file_.number(), holder.data(), holder.size(), 0) > 0;
  static_cast<void>(written);
}

bool FolderLock::holds() const {
  struct stat own {};
  struct stat found {};
  if (::fstat(file_.number(), &own) != 0) return true;  // unknown
  if (::stat(path_.c_str(), &found) != 0) return errno != ENOENT && errno != ENOTDIR;
  return own.st_dev == found.st_dev && own.st_ino == found.st_ino;
}

}  // namespace trireme
