#include "comm/watchdog/startup_markers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "comm/watchdog/process.h"
#include "core/host_name.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

// Age at which a marker whose process is in another PID namespace is considered dead.
constexpr auto kExpiry = std::chrono::hours(24);
constexpr const char* kAbandoned = ":gave-up";

// Returns a folder for the markers. It may be shared with other hosts and containers, which have
// PID namespaces of their own.
std::string marker_folder() {
  const char* temporary = std::getenv("TMPDIR");
  for (const char* folder : {"/dev/shm", temporary}) {
    if (folder && access(folder, W_OK | X_OK) == 0) return folder;
  }
  return "/tmp";
}

std::string as_name(std::string text) {
  for (char& c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return text;
}

std::string text_of(const Process& process) {
  return fmt::format("{}:{}:{}", process.pid, process.started, process.pid_namespace);
}

// In a folder that all users may write to, anyone can create a link of any name.
bool is_own(const fs::path& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0 && status.st_uid == geteuid();
}

std::optional<StartupMarker> read_once(const fs::path& path) {
  if (!is_own(path)) return {};
  std::error_code error;
  std::istringstream words(fs::read_symlink(path, error).string());
  StartupMarker marker;
  Process& process = marker.process;
  char colon = 0;
  char other = 0;
  words >> process.pid >> colon >> process.started >> other >> process.pid_namespace;
  if (error || !words || colon != ':' || other != ':') return {};
  std::string suffix;
  marker.abandoned = words >> suffix && suffix == kAbandoned;
  marker.state = state_of(process);
  return marker;
}

// A process may abandon the startup and exit between the two parts of read_once(), so the marker of
// a dead process is read again: nothing changes it any more.
std::optional<StartupMarker> read_marker(const fs::path& path) {
  const auto marker = read_once(path);
  return marker && marker->state == ProcessState::kDead ? read_once(path) : marker;
}

std::vector<fs::path> files_with_prefix(const std::string& folder, const std::string& prefix) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) paths.push_back(at->path());
  }
  return paths;
}

bool is_expired(const fs::path& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return false;
  return std::chrono::system_clock::now() -
             std::chrono::system_clock::from_time_t(status.st_mtime) >
         kExpiry;
}

// Returns true also for files that are not valid markers.
bool is_dead(const fs::path& path) {
  const auto marker = read_marker(path);
  return !marker || marker->state == ProcessState::kDead ||
         (marker->state == ProcessState::kUnseen && is_expired(path));
}

}  // namespace

Process this_process() {
  const auto stat = read_stat(0);
  return {getpid(), stat ? stat->started : 0, own_pid_namespace()};
}

ProcessState state_of(const Process& process) {
  if (process.pid_namespace != own_pid_namespace()) return ProcessState::kUnseen;
  const auto stat = read_stat(process.pid);
  if (!stat || stat->started != process.started) return ProcessState::kDead;
  if (stat->state == 'Z' || stat->state == 'X') return ProcessState::kDead;
  const bool stopped = stat->state == 'T' || stat->state == 't';
  return stopped ? ProcessState::kStopped : ProcessState::kRunning;
}

StartupMarkers::StartupMarkers(const std::string& run, int ranks)
    : ranks_(ranks),
      folder_(marker_folder()),
      user_prefix_(fmt::format("trireme-start.{}.{}.", geteuid(), as_name(host_name()))),
      run_prefix_(user_prefix_ + as_name(run) + '.') {
  const auto launcher = read_stat(getppid());
  launched_ = launcher ? launcher->started : 0;
  remove_dead_runs();
}

std::string StartupMarkers::path(int rank) const {
  return fmt::format("{}/{}{}", folder_, run_prefix_, rank);
}

void StartupMarkers::add(int rank) const { write(rank, ""); }

void StartupMarkers::abandon(int rank) const { write(rank, kAbandoned); }

void StartupMarkers::write(int rank, const std::string& suffix) const {
  // The new marker replaces an old one atomically. If this fails, the other ranks report that this
  // one has not started.
  const Process process = this_process();
  const std::string words = text_of(process) + suffix;
  const std::string temporary =
      fmt::format("{}/{}new.{}_{}", folder_, user_prefix_, process.pid, process.pid_namespace);
  unlink(temporary.c_str());  // left by a process that was killed
  static_cast<void>(symlink(words.c_str(), temporary.c_str()) == 0 &&
                    std::rename(temporary.c_str(), path(rank).c_str()) == 0);
}

void StartupMarkers::remove(int rank) const { unlink(path(rank).c_str()); }

std::vector<StartupMarker> StartupMarkers::read() const {
  std::vector<StartupMarker> markers;
  for (const fs::path& path : files_with_prefix(folder_, run_prefix_)) {
    auto marker = read_marker(path);
    std::istringstream suffix(path.filename().string().substr(run_prefix_.size()));
    if (!marker || !(suffix >> marker->rank) || !suffix.eof() || marker->rank < 0 ||
        marker->rank >= ranks_) {
      continue;
    }
    // Launchers reuse names of runs: a process that died before this launcher started belongs to an
    // earlier run.
    if (marker->state == ProcessState::kDead && marker->process.started < launched_) continue;
    markers.push_back(*marker);
  }
  std::ranges::sort(markers, {}, &StartupMarker::rank);
  return markers;
}

// Removes the markers of a run only when all its ranks are dead: the remaining ranks of a run need
// the marker of a rank that has died.
void StartupMarkers::remove_dead_runs() const {
  std::map<std::string, std::vector<fs::path>> runs;
  for (const fs::path& path : files_with_prefix(folder_, user_prefix_)) {
    const std::string name = path.filename();
    if (!name.starts_with(run_prefix_)) runs[name.substr(0, name.rfind('.'))].push_back(path);
  }
  for (const auto& [run, paths] : runs) {
    if (!std::ranges::all_of(paths, is_dead)) continue;
    for (const fs::path& path : paths) unlink(path.c_str());
  }
}

}  // namespace trireme::comm
