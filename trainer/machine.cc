#include "trainer/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace trireme {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// What follows the colon in the first line of the file with this key; empty when there is none.
std::string proc_field(const char* file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && trimmed(line.substr(0, colon)) == key) {
      return trimmed(line.substr(colon + 1));
    }
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
  machine.cpu_quota = container_quota();
  machine.memory = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
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

}  // namespace trireme
