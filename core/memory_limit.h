// The memory that this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// The message of a failed allocation.
inline constexpr const char* kOutOfMemory =
    "out of memory; `trireme inspect` prints the memory that a run needs";

// Return the host's memory in bytes, how much of it the control groups of this process may use, and
// how much this process may use, whose address space may be limited as well (`ulimit -v`).
int64_t host_memory();
int64_t group_memory_limit();
int64_t process_memory_limit();

// Throws DataError naming the file, its size and process_memory_limit(), unless `bytes` fit.
// `source` says where the size is from, and may be empty.
void require_fits_memory(const std::string& path, uint64_t bytes, const char* source = "");
// Throws DataError with the same, after an allocation for a file of this size has failed.
[[noreturn]] void fail_out_of_memory(const std::string& path, uint64_t bytes);

}  // namespace trireme
