// What this process has to run on, as the operating system tells it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace trireme::train {

struct Machine {
  std::string cpu;              // model name
  std::string instruction_set;  // the widest that counts for arithmetic, e.g. "AVX-512 BF16"
  int cores = 0;                // that this process may use: affinity
  std::string affinity;         // their numbers, e.g. "0-3,8"
  double cpu_quota = 0;         // cores' worth of time that a container allows; 0: no limit
  int online_cores = 0;         // of the machine
  double load = 0;              // the machine's load average over the last minute
  int64_t memory = 0;           // bytes of the machine
  int64_t memory_limit = 0;     // bytes that this process may use: at most `memory`
  int64_t shared_memory = 0;    // bytes of /dev/shm
  int64_t shared_memory_free = 0;
  int64_t locked_memory = 0;  // limit in bytes; -1: none
};

Machine inspect_machine();

// The smallest memory limit in bytes among a process's control groups (versions 1 and 2), which
// `membership` names as /proc/self/cgroup does, and those above them; `root` is /sys/fs/cgroup.
// Nothing where there is no limit.
std::optional<int64_t> memory_limit_of_groups(const std::filesystem::path& root,
                                              const std::string& membership);

}  // namespace trireme::train
