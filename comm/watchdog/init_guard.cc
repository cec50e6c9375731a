#include "comm/watchdog/init_guard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
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
#include <utility>
#include <vector>

#include "comm/watchdog/kill_timer.h"
#include "comm/watchdog/report.h"
#include "comm/watchdog/startup_markers.h"
#include "core/error.h"
#include "core/host_name.h"
#include "core/parse_number.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kDefaultTimeout = 300;
constexpr auto kPollPeriod = std::chrono::milliseconds(100);
// One rank of a host prints the message; the others exit after this time.
constexpr auto kReportDelay = std::chrono::seconds(1);
// Seconds after the timeout at which the kernel kills the process if the thread has not ended it.
constexpr double kGrace = 4;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int number(const char* name, int otherwise) {
  return parse_number<int>(variable(name)).value_or(otherwise);
}

// Returns the launcher's name of this run, which is unique among the runs active on this host.
std::string name_of_run(const Launcher& launcher) {
  if (launcher.name == "srun") {
    return fmt::format("slurm_{}_{}_{}", variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"),
                       variable("SLURM_RESTART_COUNT"));
  }
  const std::string pmix = variable("PMIX_NAMESPACE");
  return pmix.empty() ? fmt::format("child_of_{}", getppid()) : "pmix_" + pmix;
}

// The ranks that the launcher starts.
struct Expected {
  int own = 0;                   // this rank
  int ranks = 1;                 // number of ranks on all hosts
  int local_ranks = 0;           // number of ranks on this host; 0 if unknown
  std::vector<int> local_names;  // the ranks of this host; empty if unknown
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
    expected.local_names = parse_list(variable("SLURM_GTIDS"));
    expected.local_ranks = static_cast<int>(expected.local_names.size());
    return expected;
  }
  expected.own = number("OMPI_COMM_WORLD_RANK", number("PMIX_RANK", 0));
  expected.local_ranks = number("OMPI_COMM_WORLD_LOCAL_SIZE", 0);
  constexpr int kMaxNamed = 1 << 16;  // more ranks than a host has
  if (expected.local_ranks == expected.ranks && expected.ranks <= kMaxNamed) {
    expected.local_names.resize(expected.ranks);
    std::iota(expected.local_names.begin(), expected.local_names.end(), 0);
  }
  return expected;
}

// Returns e.g. "rank 2 of 4 has" or "ranks 1, 2 of 4 have".
std::string ranks_have(const std::vector<int>& names, int of) {
  const bool one = names.size() == 1;
  return fmt::format("{} {} of {} {}", one ? "rank" : "ranks", fmt::join(names, ", "), of,
                     one ? "has" : "have");
}

std::string missing_ranks(const Expected& expected, const std::vector<StartupMarker>& markers) {
  std::vector<int> names;
  for (const int name : expected.local_names) {
    const auto found = std::ranges::find(markers, name, &StartupMarker::rank);
    if (found == markers.end()) names.push_back(name);
  }
  if (!names.empty()) return ranks_have(names, expected.ranks) + " not started";
  const int missing = expected.local_ranks - static_cast<int>(markers.size());
  if (!expected.local_names.empty() || missing <= 0) return {};
  return fmt::format("{} of the {} ranks of this host {} not started", missing,
                     expected.local_ranks, missing == 1 ? "has" : "have");
}

// Describes the ranks of this host according to their markers.
std::string describe(const Expected& expected, const std::vector<StartupMarker>& markers) {
  std::vector<std::string> parts;
  std::vector<int> waiting;
  if (const std::string missing = missing_ranks(expected, markers); !missing.empty()) {
    parts.push_back(missing);
  }
  for (const StartupMarker& marker : markers) {
    const bool dead = marker.state == ProcessState::kDead;
    if (dead || marker.state == ProcessState::kStopped) {
      parts.push_back(fmt::format("rank {} of {} (pid {}) {}", marker.rank, expected.ranks,
                                  marker.process.pid, dead ? "has died" : "is stopped"));
    } else {
      waiting.push_back(marker.rank);
    }
  }
  const bool all = parts.empty() && expected.local_ranks > 0;
  parts.push_back(fmt::format("{} on host {}: {} {}", all ? "all ranks have started" : "waiting",
                              host_name(), waiting.size() == 1 ? "rank" : "ranks",
                              fmt::join(waiting, ", ")));
  if (expected.local_ranks > 0 && expected.local_ranks < expected.ranks) {
    parts.push_back(fmt::format("the state of the {} ranks on other hosts is not known here",
                                expected.ranks - expected.local_ranks));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string network_hint(const Expected& expected) {
  if (expected.local_ranks == 0 || expected.local_ranks == expected.ranks) return {};
  return "; if they have started, MPI may use a network that does not connect the hosts, such as "
         "that of a container bridge: name the right one with `mpirun --mca btl_tcp_if_include "
         "NETWORK --mca oob_tcp_if_include NETWORK`, e.g. 192.168.1.0/24";
}

// Returns true if this rank is the one of its host that prints the message.
bool reports(const Expected& expected, const std::vector<StartupMarker>& markers) {
  const auto first = std::ranges::find(markers, ProcessState::kRunning, &StartupMarker::state);
  return first == markers.end() || first->rank >= expected.own;
}

}  // namespace

double init_timeout() {
  const std::string text = variable(kInitTimeoutVariable);
  if (text.empty()) return kDefaultTimeout;
  const double seconds = parse_number<double>(text).value_or(-1);
  if (!(seconds >= 0 && seconds <= 1e6)) {
    throw ConfigError(kInitTimeoutVariable,
                      fmt::format("'{}' is not a number of seconds between 0 and 1e6", text));
  }
  return seconds;
}

struct InitGuard::State {
  State(const Launcher& launcher, double bound, std::function<void(const std::string&)> callback)
      : report(std::move(callback)),
        markers(name_of_run(launcher), launcher.ranks),
        expected(expected_ranks(launcher)),
        seconds(bound),
        kill_timer(kill_after(bound + kGrace)) {
    markers.add(expected.own);
    thread = std::thread([this] { watch(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    thread.join();
    markers.remove(expected.own);
    if (kill_timer) timer_delete(*kill_timer);
  }

  void watch() {
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kPollPeriod, [this] { return over; })) {
      const std::vector<StartupMarker> found = markers.read();
      if (std::ranges::any_of(found, &StartupMarker::abandoned)) exit_process();
      if (std::ranges::find(found, ProcessState::kDead, &StartupMarker::state) != found.end()) {
        abandon("startup failed before all ranks had joined: " + describe(expected, found), found);
      }
      if (Clock::now() >= deadline) {
        abandon(
            fmt::format("not all ranks joined within {} s ({} sets this limit): {}{}", seconds,
                        kInitTimeoutVariable, describe(expected, found), network_hint(expected)),
            found);
      }
    }
  }

  // One rank of the host prints the message. The others exit when its marker says that it has, or
  // after kReportDelay.
  [[noreturn]] void abandon(const std::string& message, const std::vector<StartupMarker>& found) {
    if (reports(expected, found)) {
      report ? report(message) : comm::report(message, {});
      std::fflush(stdout);
    } else {
      std::this_thread::sleep_for(kReportDelay);
    }
    exit_process();
  }

  [[noreturn]] void exit_process() {
    markers.abandon(expected.own);
    const std::vector<StartupMarker> found = markers.read();
    // The last rank removes all markers.
    if (std::ranges::all_of(found, [](const StartupMarker& marker) {
          return marker.abandoned || marker.state == ProcessState::kDead;
        })) {
      for (const StartupMarker& marker : found) markers.remove(marker.rank);
    }
    std::_Exit(static_cast<int>(ExitCode::kFailure));
  }

  const std::function<void(const std::string&)> report;
  const StartupMarkers markers;
  const Expected expected;
  const double seconds;
  const std::optional<timer_t> kill_timer;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread thread;
};

InitGuard::InitGuard(const Launcher& launcher, double seconds,
                     std::function<void(const std::string& message)> report) {
  if (seconds > 0) state_ = std::make_unique<State>(launcher, seconds, std::move(report));
}

InitGuard::~InitGuard() = default;

}  // namespace trireme::comm
