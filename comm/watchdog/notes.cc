#include "comm/watchdog/notes.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
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

// Whose process cannot be seen from here is taken for dead after this.
constexpr auto kForgotten = std::chrono::hours(24);
constexpr const char* kGaveUp = ":gave-up";

// Folders may be shared with hosts, and containers, that number their processes for themselves.
std::string notes_folder() {
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

std::optional<Note> read_note(const fs::path& path) {
  std::error_code error;
  std::istringstream words(fs::read_symlink(path, error).string());
  Note note;
  Process& process = note.process;
  char colon = 0;
  char other = 0;
  words >> process.pid >> colon >> process.started >> other >> process.pid_namespace;
  if (error || !words || colon != ':' || other != ':') return {};
  std::string suffix;
  note.gave_up = words >> suffix && suffix == kGaveUp;
  note.state = state_of(process);
  return note;
}

std::vector<fs::path> files_that_begin(const std::string& folder, const std::string& prefix) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) paths.push_back(at->path());
  }
  return paths;
}

bool is_forgotten(const fs::path& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return false;
  return std::chrono::system_clock::now() -
             std::chrono::system_clock::from_time_t(status.st_mtime) >
         kForgotten;
}

// What is no note says nothing of a living run.
bool is_dead(const fs::path& path) {
  const auto note = read_note(path);
  return !note || note->state == ProcessState::kDead ||
         (note->state == ProcessState::kUnseen && is_forgotten(path));
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

Notes::Notes(const std::string& run)
    : folder_(notes_folder()),
      mine_(fmt::format("trireme-start.{}.{}.", geteuid(), as_name(host_name()))),
      ours_(mine_ + as_name(run) + '.') {
  const auto launcher = read_stat(getppid());
  launched_ = launcher ? launcher->started : 0;
  remove_dead_runs();
}

std::string Notes::path(int rank) const { return fmt::format("{}/{}{}", folder_, ours_, rank); }

void Notes::leave(int rank) const { write(rank, ""); }

void Notes::give_up(int rank) const { write(rank, kGaveUp); }

void Notes::write(int rank, const std::string& suffix) const {
  remove(rank);
  // If it cannot be written the others will say that they have not seen this rank.
  const std::string words = text_of(this_process()) + suffix;
  static_cast<void>(symlink(words.c_str(), path(rank).c_str()) == 0);
}

void Notes::remove(int rank) const { unlink(path(rank).c_str()); }

std::vector<Note> Notes::read() const {
  std::vector<Note> notes;
  for (const fs::path& path : files_that_begin(folder_, ours_)) {
    auto note = read_note(path);
    std::istringstream suffix(path.filename().string().substr(ours_.size()));
    if (!note || !(suffix >> note->rank)) continue;
    // Launchers use their names for runs again; who died before this one was launched was of
    // another.
    if (note->state == ProcessState::kDead && note->process.started < launched_) continue;
    notes.push_back(*note);
  }
  std::ranges::sort(notes, {}, &Note::rank);
  return notes;
}

// A run that has lost a rank still needs that one's note, so they are removed together.
void Notes::remove_dead_runs() const {
  std::map<std::string, std::vector<fs::path>> runs;
  for (const fs::path& path : files_that_begin(folder_, mine_)) {
    const std::string name = path.filename();
    if (!name.starts_with(ours_)) runs[name.substr(0, name.rfind('.'))].push_back(path);
  }
  for (const auto& [run, paths] : runs) {
    if (!std::ranges::all_of(paths, is_dead)) continue;
    for (const fs::path& path : paths) unlink(path.c_str());
  }
}

}  // namespace trireme::comm
