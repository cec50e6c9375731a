// Information from Linux about a process.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>

namespace trireme::comm {

struct ProcessStat {
  std::array<char, 16> name = {};  // name of the program, truncated by the kernel
  char state = 0;                  // R, S, D, T, Z, ...
  pid_t parent = 0;
  uint64_t started = 0;  // clock ticks since the machine started
};

// Reads /proc/PID/stat; pid 0 is this process. Returns nullopt if there is no such process. Does
// not allocate and takes no lock.
std::optional<ProcessStat> read_stat(pid_t pid) noexcept;

// Returns the id of this process's PID namespace, in which its process ids are valid; 0 if unknown.
uint64_t own_pid_namespace() noexcept;

}  // namespace trireme::comm
