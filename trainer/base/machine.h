// The resources of this host, as the operating system reports them.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::train {

struct Machine {
  std::string cpu;              // model name
  std::string instruction_set;  // the widest SIMD instructions, e.g. "AVX-512 with BF16"
  int cores = 0;                // cores that this process may use (affinity)
  std::string affinity;         // the numbers of these cores, e.g. "0-3,8"
  double cpu_quota = 0;         // smallest CPU quota of its control groups in cores; 0: none
  int online_cores = 0;         // cores of the host that are online
  double load = 0;              // load average of the host over the last minute
  int64_t memory = 0;           // memory of the host in bytes
  int64_t memory_limit = 0;     // limit of the control groups in bytes; at most `memory`
  int64_t address_space = 0;    // limit of each process's addresses in bytes; 0 if there is none
  int64_t shared_memory = 0;    // size of /dev/shm in bytes
  int64_t shared_memory_free = 0;
  int64_t locked_memory = 0;  // limit in bytes; -1 if there is none
};

Machine inspect_machine();

}  // namespace trireme::train
