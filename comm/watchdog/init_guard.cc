#include "comm/watchdog/init_guard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "comm/watchdog/last_resort.h"
#include "comm/watchdog/notes.h"
#include "core/error.h"
#include "core/host_name.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kVariable = "TRIREME_INIT_TIMEOUT";
constexpr double kDefaultTimeout = 300;
constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
// One rank of a host speaks, the others leave after this.
constexpr auto kTimeToSpeak = std::chrono::seconds(1);
// By when the thread has ended the process, if it can.
constexpr double kGrace = 4;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int number(const char* name, int otherwise) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

// What the launcher calls this run; unique among those of this host that live.
std::string name_of_run(const Launcher& launcher) {
  if (launcher.name == "srun") {
    return fmt::format("slurm_{}_{}_{}", variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"),
                       variable("SLURM_RESTART_COUNT"));
  }
  const std::string pmix = variable("PMIX_NAMESPACE");
  return pmix.empty() ? fmt::format("child_of_{}", getppid()) : "pmix_" + pmix;
}

// The ranks that are to start on this host.
struct Expected {
  int own = 0;
  int ranks = 1;           // on all hosts
  int here = 0;            // on this one; 0: the launcher does not say
  std::vector<int> names;  // which, where the launcher says so
};

std::vector<int> parse_list(const std::string& text) {
  std::istringstream words(text);
  std::vector<int> values;
  for (std::string word; std::getline(words, word, ',');) values.push_back(std::atoi(word.c_str()));
  return values;
}

Expected expected_ranks(const Launcher& launcher) {
  Expected expected;
  expected.ranks = launcher.ranks;
  if (launcher.name == "srun") {
    expected.own = number("SLURM_PROCID", 0);
    expected.names = parse_list(variable("SLURM_GTIDS"));
    expected.here = static_cast<int>(expected.names.size());
    return expected;
  }
  expected.own = number("OMPI_COMM_WORLD_RANK", number("PMIX_RANK", 0));
  expected.here = number("OMPI_COMM_WORLD_LOCAL_SIZE", 0);
  if (expected.here == expected.ranks) {
    expected.names.resize(expected.ranks);
    std::iota(expected.names.begin(), expected.names.end(), 0);
  }
  return expected;
}

// "rank 2 of 4 has", "ranks 1, 2 of 4 have".
std::string ranks_have(const std::vector<int>& names, int of) {
  const bool one = names.size() == 1;
  return fmt::format("{} {} of {} {}", one ? "rank" : "ranks", fmt::join(names, ", "), of,
                     one ? "has" : "have");
}

std::string missing_ranks(const Expected& expected, const std::vector<Note>& notes) {
  std::vector<int> names;
  for (const int name : expected.names) {
    if (std::ranges::find(notes, name, &Note::rank) == notes.end()) names.push_back(name);
  }
  if (!names.empty()) return ranks_have(names, expected.ranks) + " not started";
  const int missing = expected.here - static_cast<int>(notes.size());
  if (!expected.names.empty() || missing <= 0) return {};
  return fmt::format("{} of the {} ranks of this host {} not started", missing, expected.here,
                     missing == 1 ? "has" : "have");
}

// The ranks of this host as far as their notes tell.
std::string describe(const Expected& expected, const std::vector<Note>& notes) {
  std::vector<std::string> parts;
  std::vector<int> waiting;
  if (const std::string missing = missing_ranks(expected, notes); !missing.empty()) {
    parts.push_back(missing);
  }
  for (const Note& note : notes) {
    const bool dead = note.state == ProcessState::kDead;
    if (dead || note.state == ProcessState::kStopped) {
      parts.push_back(fmt::format("rank {} of {} (pid {}) {}", note.rank, expected.ranks,
                                  note.process.pid, dead ? "has died" : "is stopped"));
    } else {
      waiting.push_back(note.rank);
    }
  }
  const std::string all = parts.empty() && expected.here > 0 ? "all" : "";
  parts.push_back(fmt::format("{}arrived on host {}: {} {}", all.empty() ? "" : "all have ",
                              host_name(), waiting.size() == 1 ? "rank" : "ranks",
                              fmt::join(waiting, ", ")));
  if (expected.here > 0 && expected.here < expected.ranks) {
    parts.push_back(fmt::format("of the {} ranks on other hosts nothing is known here",
                                expected.ranks - expected.here));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

bool speaks(const Expected& expected, const std::vector<Note>& notes) {
  const auto first = std::ranges::find(notes, ProcessState::kRunning, &Note::state);
  return first == notes.end() || first->rank >= expected.own;
}

}  // namespace

double init_timeout() {
  const std::string text = variable(kVariable);
  if (text.empty()) return kDefaultTimeout;
  double seconds = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0) ||
      seconds > 1e6) {
    throw ConfigError(kVariable, fmt::format("'{}' is no number of seconds", text));
  }
  return seconds;
}

struct InitGuard::State {
  State(const Launcher& launcher, double bound)
      : notes(name_of_run(launcher)),
        expected(expected_ranks(launcher)),
        seconds(bound),
        last_resort(kill_after(bound + kGrace)) {
    notes.leave(expected.own);
    thread = std::thread([this] { watch(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    thread.join();
    notes.remove(expected.own);
    if (last_resort) timer_delete(*last_resort);
  }

  void watch() {
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kBetweenLooks, [this] { return over; })) {
      const std::vector<Note> found = notes.read();
      if (std::ranges::any_of(found, &Note::gave_up)) leave();
      if (std::ranges::find(found, ProcessState::kDead, &Note::state) != found.end()) {
        give_up("before all ranks had joined: " + describe(expected, found), found);
      }
      if (Clock::now() >= deadline) {
        give_up(fmt::format("after {} s not all ranks have joined: {} ({} sets how long to wait)",
                            seconds, describe(expected, found), kVariable),
                found);
      }
    }
  }

  // One rank of a host speaks. The others follow it, or leave by themselves if it cannot.
  [[noreturn]] void give_up(const std::string& message, const std::vector<Note>& found) {
    if (speaks(expected, found)) {
      std::fprintf(stderr, "trireme: %s\n", message.c_str());
      std::fflush(stderr);
    } else {
      std::this_thread::sleep_for(kTimeToSpeak);
    }
    leave();
  }

  [[noreturn]] void leave() {
    notes.give_up(expected.own);
    const std::vector<Note> found = notes.read();
    // The last one clears up.
    if (std::ranges::all_of(found, [](const Note& note) {
          return note.gave_up || note.state == ProcessState::kDead;
        })) {
      for (const Note& note : found) notes.remove(note.rank);
    }
    std::_Exit(static_cast<int>(ExitCode::kFailure));
  }

  const Notes notes;
  const Expected expected;
  const double seconds;
  const std::optional<timer_t> last_resort;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread thread;
};

InitGuard::InitGuard(const Launcher& launcher, double seconds) {
  if (seconds > 0) state_ = std::make_unique<State>(launcher, seconds);
}

InitGuard::~InitGuard() = default;

}  // namespace trireme::comm
