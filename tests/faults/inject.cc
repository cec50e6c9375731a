// What fault_point() does in trireme-faulty, as the environment says:
//   TRIREME_INJECT="PLACE ACTION [rank=R] [step=S] [index=I] [times=N] [seconds=X] [once=FILE];
//   ..."
// A fault strikes where all that is given fits: on rank R (default: every rank), in step S (of the
// latest place "step"), at index I of the place; N times (default 1; 0: always). Where FILE is
// given it strikes only when that does not exist yet, and creates it: once over several starts.
//   kill | stop | segv | abort | throw | exit     this process
//   sleep seconds=X                               this thread; X < 0: for ever
//   skip                                          what follows is left out
//   nan | flip                                    spoils the memory that the place offers: a NaN, a
//   flipped bit
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

[[noreturn]] void misused(const std::string& what) {
  std::fprintf(stderr, "TRIREME_INJECT: %s\n", what.c_str());
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
    misused("unknown " + key);
  }
}

std::unique_ptr<Fault> parse(const std::string& text) {
  auto fault = std::make_unique<Fault>();
  std::istringstream words(text);
  words >> fault->place >> fault->action;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) misused("'" + word + "' is no KEY=VALUE");
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

bool strikes(const Fault& fault, const char* name, int64_t index, int64_t step) {
  if (fault.place != name) return false;
  if (fault.rank >= 0 && fault.rank != own_rank()) return false;
  if (fault.step >= 0 && fault.step != step) return false;
  if (fault.index >= 0 && fault.index != index) return false;
  if (fault.times > 0 && fault.struck.fetch_add(1) >= fault.times) return false;
  if (fault.once.empty()) return true;
  const int file = open(fault.once.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (file >= 0) close(file);
  return file >= 0;
}

void spoil(const Fault& fault, std::span<std::byte> memory) {
  if (memory.size() < sizeof(float)) misused(fault.place + " has no memory to spoil");
  if (fault.action == "nan") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(memory.data(), &nan, sizeof nan);
  } else {
    memory[memory.size() / 2] ^= std::byte{4};
  }
}

// Whether what follows is left out.
bool strike(const Fault& fault, std::span<std::byte> memory) {
  if (fault.action == "kill") raise(SIGKILL);
  if (fault.action == "stop") return raise(SIGSTOP), false;
  if (fault.action == "segv") raise(SIGSEGV);
  if (fault.action == "abort") std::abort();
  if (fault.action == "throw") throw std::runtime_error("injected at " + fault.place);
  if (fault.action == "exit") std::_Exit(7);
  if (fault.action == "skip") return true;
  if (fault.action == "nan" || fault.action == "flip") return spoil(fault, memory), false;
  if (fault.action != "sleep") misused("unknown action '" + fault.action + "'");
  const double seconds = fault.seconds < 0 ? 1e6 : fault.seconds;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return false;
}

}  // namespace

bool fault_point(const char* name, int64_t index, std::span<std::byte> memory) {
  static const std::vector<std::unique_ptr<Fault>> faults = parse_all();
  static std::atomic<int64_t> step{-1};
  if (std::strcmp(name, "step") == 0) step = index;
  bool left_out = false;
  for (const auto& fault : faults) {
    if (strikes(*fault, name, index, step)) left_out |= strike(*fault, memory);
  }
  return left_out;
}

}  // namespace trireme
