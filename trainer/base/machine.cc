#include "trainer/base/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string_view>

#include "core/control_groups.h"
#include "core/memory_limit.h"
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

}  // namespace

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
  machine.cpu_quota = min_cpu_quota().value_or(0);
  machine.memory = host_memory();
  machine.memory_limit = group_memory_limit();
  rlimit addresses{};
  getrlimit(RLIMIT_AS, &addresses);
  machine.address_space =
      addresses.rlim_cur == RLIM_INFINITY ? 0 : static_cast<int64_t>(addresses.rlim_cur);
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
