#include "trainer/base/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "core/text.h"

namespace trireme::train {
namespace {

// What follows the colon in the first line of the file with this key; empty when there is none.
std::string proc_field(const char* file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view text = line;
    if (trimmed(text.substr(0, colon)) == key) return std::string(trimmed(text.substr(colon + 1)));
  }
  return "";
}

std::string widest_instruction_set() {
  if (__builtin_cpu_supports("avx512f")) {
    return __builtin_cpu_supports("avx512bf16") ? "AVX-512 with BF16" : "AVX-512";
  }
  if (__builtin_cpu_supports("avx2")) return "AVX2";
  if (__builtin_cpu_supports("avx")) return "AVX";
  return "SSE";
}

// "max 100000" or "QUOTA PERIOD" in microseconds, of this process's control group.
double container_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

// In bytes; nothing for "max" and where there is no file.
std::optional<int64_t> read_limit(const std::filesystem::path& path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes ? std::optional(bytes) : std::nullopt;
}

std::string whole(const char* file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

int64_t memory_limit(int64_t memory) {
  int64_t limit = memory;
  const auto groups = memory_limit_of_groups("/sys/fs/cgroup", whole("/proc/self/cgroup"));
  if (groups) limit = std::min(limit, *groups);
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 &&
      address_space.rlim_cur < static_cast<rlim_t>(limit)) {
    limit = static_cast<int64_t>(address_space.rlim_cur);
  }
  return limit;
}

}  // namespace

std::optional<int64_t> memory_limit_of_groups(const std::filesystem::path& root,
                                              const std::string& membership) {
  std::optional<int64_t> least;
  const auto look = [&](const std::filesystem::path& file) {
    const auto limit = read_limit(file);
    if (limit && (!least || *limit < *least)) least = limit;
  };
  std::istringstream lines(membership);
  // "0::/a/b" of version 2, "5:memory:/a/b" of version 1.
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == line.npos) continue;
    const auto base = unified ? root : root / "memory";
    const char* const file = unified ? "memory.max" : "memory.limit_in_bytes";
    // Within a container the path may be that of the host, and only the root be there.
    auto group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      look(base / group / file);
      if (group.empty()) break;
    }
  }
  return least;
}

Machine inspect_machine() {
  Machine machine;
  machine.cpu = proc_field("/proc/cpuinfo", "model name");
  machine.instruction_set = widest_instruction_set();
  machine.online_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  getloadavg(&machine.load, 1);
  cpu_set_t cpus;
  machine.cores =
      sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : machine.online_cores;
  machine.affinity = proc_field("/proc/self/status", "Cpus_allowed_list");
  machine.cpu_quota = container_quota();
  machine.memory = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  machine.memory_limit = memory_limit(machine.memory);
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    machine.shared_memory = static_cast<int64_t>(shm.f_blocks * shm.f_frsize);
    machine.shared_memory_free = static_cast<int64_t>(shm.f_bavail * shm.f_frsize);
  }
  rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  machine.locked_memory =
      locked.rlim_cur == RLIM_INFINITY ? -1 : static_cast<int64_t>(locked.rlim_cur);
  return machine;
}

}  // namespace trireme::train
