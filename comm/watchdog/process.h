// What Linux says of a process.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>

namespace trireme::comm {

struct ProcessStat {
  std::array<char, 16> name = {};  // of the program, as far as the kernel keeps it
  char state = 0;                  // R, S, D, T, Z, ...
  pid_t parent = 0;
  uint64_t started = 0;  // clock ticks since the machine started
};

// From /proc/PID/stat; 0 is this process. Nothing where there is no such process. Allocates nothing
// and takes no lock.
std::optional<ProcessStat> read_stat(pid_t pid) noexcept;

// Process ids mean something in their namespace alone. 0: unknown.
uint64_t own_pid_namespace() noexcept;

}  // namespace trireme::comm
