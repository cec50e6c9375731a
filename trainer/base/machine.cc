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

// Returns the value of the first line "KEY: VALUE" with this key; empty if there is none.
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

// Returns the CPU quota of this process's control group in cores; 0 if there is none. The file has
// "max PERIOD" or "QUOTA PERIOD", in microseconds.
double container_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

// Returns a limit in bytes; nothing if it is "max" or there is no file.
std::optional<int64_t> read_limit(const std::filesystem::path& path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes ? std::optional(bytes) : std::nullopt;
}

std::string content_of(const char* file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

int64_t memory_limit(int64_t memory) {
  int64_t limit = memory;
  const auto groups = cgroup_memory_limit("/sys/fs/cgroup", content_of("/proc/self/cgroup"));
  if (groups) limit = std::min(limit, *groups);
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 &&
      address_space.rlim_cur < static_cast<rlim_t>(limit)) {
    limit = static_cast<int64_t>(address_space.rlim_cur);
  }
  return limit;
}

}  // namespace

std::optional<int64_t> cgroup_memory_limit(const std::filesystem::path& root,
                                           const std::string& membership) {
  std::optional<int64_t> min_limit;
  const auto add = [&](const std::filesystem::path& file) {
    const auto limit = read_limit(file);
    if (limit && (!min_limit || *limit < *min_limit)) min_limit = limit;
  };
  std::istringstream lines(membership);
  // "0::/a/b" in version 2, "5:memory:/a/b" in version 1.
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == line.npos) continue;
    const auto base = unified ? root : root / "memory";
    const char* const file = unified ? "memory.max" : "memory.limit_in_bytes";
    // In a container the path may be that of the host, of which only the root exists.
    auto group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      add(base / group / file);
      if (group.empty()) break;
    }
  }
  return min_limit;
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
