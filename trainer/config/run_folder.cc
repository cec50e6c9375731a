#include "trainer/config/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/file.h"
#include "core/host_name.h"
#include "trainer/base/process.h"

namespace trireme::train {

namespace fs = std::filesystem;

namespace {

// Returns a name with other characters than letters, digits, '-', '_' and '.' replaced, and
// shortened. The name of a model may be from a file.
std::string as_file_name(std::string name) {
  constexpr size_t kMaxLength = 100;
  name.resize(std::min(name.size(), kMaxLength));
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '_';
  }
  return name;
}

}  // namespace

fs::path default_run_folder(const RunConfig& config) {
  const auto now = fmt::localtime(std::time(nullptr));
  const fs::path wanted =
      fs::path("runs") / fmt::format("{}-{:%Y%m%d-%H%M%S}", as_file_name(model_name(config)), now);
  fs::path path = wanted;
  std::error_code none;
  for (int i = 2; fs::exists(path, none); ++i) path = wanted.string() + fmt::format("-{}", i);
  return path;
}

RunFolder find_run(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (error) throw ConfigError(path.string(), "cannot be read: " + error.message());
    throw ConfigError(
        path.string(),
        "no such run or checkpoint; name a run's folder (runs/...) or a checkpoint in it");
  }
  constexpr int kLevels = 4;
  RunFolder run{fs::weakly_canonical(path)};
  for (int level = 0; level < kLevels && !run.path.empty(); ++level) {
    if (fs::exists(run.config(), error)) return run;
    if (error) throw ConfigError(run.config().string(), "cannot be read: " + error.message());
    run.path = run.path.parent_path();
  }
  throw ConfigError(
      path.string(),
      fmt::format("no {} here or above: this is not the folder of a run; a checkpoint "
                  "is only used within its run's folder",
                  run.config().filename().string()));
}

fs::path RunFolder::log(int rank) const { return path / "log" / fmt::format("rank-{}.log", rank); }

void RunFolder::prepare() const {
  try {
    create_folders(path / "log");
    create_folders(checkpoints());
    static_cast<void>(open_own_folder(checkpoints()));
    for (const fs::path& file : {config(), samples(), environment(), evaluation(), summary()}) {
      fs::remove(file.string() + kTemporarySuffix);
    }
    const fs::path probe = path / ".writable";
    write_durably(probe, "");
    fs::remove(probe);
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("run folder {} cannot be used: {}; choose another with --run-dir",
                            path.string(), error.code().message()));
  } catch (const Error& error) {
    throw Error(fmt::format("run folder {} cannot be used: {}; choose another with --run-dir",
                            path.string(), error.what()));
  }
}

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

RunLock::RunLock(const fs::path& run_folder)
    : path_(run_folder / ".lock"),
      file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666)) {
  if (file_ < 0) {
    throw Error(fmt::format("{}: cannot be opened: {}", path_.string(), std::strerror(errno)));
  }
  if (!lock_with_timeout(file_)) {
    if (errno != EWOULDBLOCK) {
      problem_ = fmt::format(
          "{}: this file system does not support locks ({}), so a second run could use the folder",
          path_.string(), std::strerror(errno));
      return;
    }
    ::close(file_);
    const std::string holder = read_text(path_);
    throw Error(fmt::format(
        "run folder {} is in use by {}; wait until it ends, or choose another with --run-dir",
        run_folder.string(), holder.empty() ? "another process" : holder));
  }
  const std::string holder = fmt::format("process {} on {}", ::getpid(), host_name());
  // The holder is only for the message of another process; writing may fail if the disk is full.
  const bool written =
      ::ftruncate(file_, 0) == 0 && ::pwrite(file_, holder.data(), holder.size(), 0) > 0;
  static_cast<void>(written);
}

RunLock::~RunLock() { ::close(file_); }

bool RunLock::holds() const {
  struct stat locked {};
  if (::fstat(file_, &locked) != 0) return true;  // unknown
  struct stat current {};
  if (::stat(path_.c_str(), &current) != 0) return errno != ENOENT && errno != ENOTDIR;
  return current.st_dev == locked.st_dev && current.st_ino == locked.st_ino;
}

}  // namespace trireme::train
