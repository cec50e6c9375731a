#include "trainer/config/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

fs::path default_run_folder(const RunConfig& config) {
  const auto now = fmt::localtime(std::time(nullptr));
  const fs::path wanted =
      fs::path("runs") / fmt::format("{}-{:%Y%m%d-%H%M%S}", model_name(config), now);
  fs::path path = wanted;
  std::error_code none;
  for (int i = 2; fs::exists(path, none); ++i) path = wanted.string() + fmt::format("-{}", i);
  return path;
}

RunFolder find_run(const fs::path& path) {
  if (!fs::exists(path)) {
    throw ConfigError(
        path.string(),
        "no such run or checkpoint; give a run's folder (runs/...) or a checkpoint in it");
  }
  constexpr int kLevels = 4;
  RunFolder run{fs::weakly_canonical(path)};
  for (int level = 0; level < kLevels && !run.path.empty(); ++level) {
    if (fs::exists(run.config())) return run;
    run.path = run.path.parent_path();
  }
  throw ConfigError(path.string(),
                    fmt::format("no {} here or above: this is not the folder of a run",
                                run.config().filename().string()));
}

fs::path RunFolder::log(int rank) const { return path / "log" / fmt::format("rank-{}.log", rank); }

void RunFolder::prepare() const {
  try {
    create_folders(path / "log");
    create_folders(checkpoints());
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

constexpr auto kLockPatience = std::chrono::seconds(3);

// Whether it has been got; errno tells why not.
bool lock_patiently(int file) {
  const auto end = std::chrono::steady_clock::now() + kLockPatience;
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
      file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) {
    throw Error(fmt::format("{}: cannot be opened: {}", path_.string(), std::strerror(errno)));
  }
  if (!lock_patiently(file_)) {
    if (errno != EWOULDBLOCK) {
      problem_ = fmt::format(
          "{}: this file system has no locks ({}), so nothing keeps a second run out of the folder",
          path_.string(), std::strerror(errno));
      return;
    }
    ::close(file_);
    const std::string holder = read_text(path_);
    throw Error(fmt::format(
        "run folder {} is in use by {}; wait for its end, or choose another with --run-dir",
        run_folder.string(), holder.empty() ? "another process" : holder));
  }
  const std::string holder = fmt::format("process {} on {}", ::getpid(), host_name());
  // Only for the message of another process, which does without it when the disk is full.
  const bool told =
      ::ftruncate(file_, 0) == 0 && ::pwrite(file_, holder.data(), holder.size(), 0) > 0;
  static_cast<void>(told);
}

RunLock::~RunLock() { ::close(file_); }

bool RunLock::holds() const {
  struct stat locked {};
  if (::fstat(file_, &locked) != 0) return true;  // nobody can tell
  struct stat there {};
  if (::stat(path_.c_str(), &there) != 0) return errno != ENOENT && errno != ENOTDIR;
  return there.st_dev == locked.st_dev && there.st_ino == locked.st_ino;
}

}  // namespace trireme::train
