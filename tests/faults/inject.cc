// Implements fault_point() for trireme-faulty. The environment describes the faults:
//   TRIREME_INJECT="PLACE ACTION [rank=R] [step=S] [index=I] [times=N] [seconds=X] [once=FILE];
//   ..."
// A fault strikes at the fault point PLACE if all given conditions hold: on rank R (default: every
// rank), in step S (the index of the latest fault point "step"), at index I of the fault point. It
// strikes N times (default 1; 0 for no limit). With FILE it strikes only if the file does not
// exist, and creates it, so that it strikes once over several starts. The actions are
//   kill | stop | segv | abort | throw | exit   of this process
//   sleep seconds=X                             of this thread; X < 0 for no limit
//   skip                                        the operation after the fault point
//   nan | flip                                  writes a NaN, or flips a bit, in the memory that
//                                               the fault point passes
// The first fault that strikes creates the file TRIREME_INJECT_STRUCK.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/fault_point.h"

namespace trireme {
namespace {

struct Fault {
  std::string place;
  std::string action;
  int64_t rank = -1;
  int64_t step = -1;
  int64_t index = -1;
  int64_t times = 1;
  double seconds = -1;
  std::string once;
  mutable std::atomic<int64_t> struck{0};
};

[[noreturn]] void exit_with_usage_error(const std::string& problem) {
  std::fprintf(stderr, "TRIREME_INJECT: %s\n", problem.c_str());
  std::_Exit(99);
}

void set(Fault& fault, const std::string& key, const std::string& value) {
  if (key == "rank") {
    fault.rank = std::stoll(value);
  } else if (key == "step") {
    fault.step = std::stoll(value);
  } else if (key == "index") {
    fault.index = std::stoll(value);
  } else if (key == "times") {
    fault.times = std::stoll(value);
  } else if (key == "seconds") {
    fault.seconds = std::stod(value);
  } else if (key == "once") {
    fault.once = value;
  } else {
    exit_with_usage_error("unknown key '" + key + "'");
  }
}

std::unique_ptr<Fault> parse(const std::string& text) {
  auto fault = std::make_unique<Fault>();
  std::istringstream words(text);
  words >> fault->place >> fault->action;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) exit_with_usage_error("'" + word + "' is not KEY=VALUE");
    set(*fault, word.substr(0, equals), word.substr(equals + 1));
  }
  return fault;
}

std::vector<std::unique_ptr<Fault>> parse_all() {
  std::vector<std::unique_ptr<Fault>> faults;
  const char* text = std::getenv("TRIREME_INJECT");
  std::istringstream parts(text ? text : "");
  for (std::string part; std::getline(parts, part, ';');) faults.push_back(parse(part));
  return faults;
}

int64_t own_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoll(value);
  }
  return 0;
}

// Creates the file. Returns whether it did not exist.
bool create(const char* path) {
  const int file = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (file >= 0) close(file);
  return file >= 0;
}

bool strikes(const Fault& fault, const char* name, int64_t index, int64_t step) {
  if (fault.place != name) return false;
  if (fault.rank >= 0 && fault.rank != own_rank()) return false;
  if (fault.step >= 0 && fault.step != step) return false;
  if (fault.index >= 0 && fault.index != index) return false;
  if (fault.times > 0 && fault.struck.fetch_add(1) >= fault.times) return false;
  return fault.once.empty() || create(fault.once.c_str());
}

void corrupt(const Fault& fault, std::span<std::byte> memory) {
  if (memory.size() < sizeof(float)) exit_with_usage_error(fault.place + " passes no memory");
  if (fault.action == "nan") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(memory.data(), &nan, sizeof nan);
  } else {
    memory[memory.size() / 2] ^= std::byte{4};
  }
}

// Carries out the action. Returns true if the operation after the fault point is to be skipped.
bool strike(const Fault& fault, std::span<std::byte> memory) {
  if (const char* path = std::getenv("TRIREME_INJECT_STRUCK")) create(path);
  if (fault.action == "kill") raise(SIGKILL);
  if (fault.action == "stop") return raise(SIGSTOP), false;
  if (fault.action == "segv") raise(SIGSEGV);
  if (fault.action == "abort") std::abort();
  if (fault.action == "throw") throw std::runtime_error("injected at " + fault.place);
  if (fault.action == "exit") std::_Exit(7);
  if (fault.action == "skip") return true;
  if (fault.action == "nan" || fault.action == "flip") return corrupt(fault, memory), false;
  if (fault.action != "sleep") exit_with_usage_error("unknown action '" + fault.action + "'");
  const double seconds = fault.seconds < 0 ? 1e6 : fault.seconds;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return false;
}

}  // namespace

bool fault_point(const char* name, int64_t index, std::span<std::byte> memory) {
  static const std::vector<std::unique_ptr<Fault>> faults = parse_all();
  static std::atomic<int64_t> step{-1};
  if (std::strcmp(name, "step") == 0) step = index;
  bool skip = false;
  for (const auto& fault : faults) {
    if (strikes(*fault, name, index, step)) skip |= strike(*fault, memory);
  }
  return skip;
}

}  // namespace trireme
