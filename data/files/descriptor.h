// Functions to open and read files by descriptor.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/descriptor.h"

namespace trireme::data {

// Opens a file for reading. Throws DataError if it is missing or not a regular file.
Descriptor open_file(const std::string& path);
// Fills `bytes` from position `begin` of the file. Throws DataError naming `where` if the file is
// too short or cannot be read.
void read_at(const Descriptor& file, const std::string& where, uint64_t begin,
             std::span<uint8_t> bytes);
// Reads a record of `size` bytes at `begin` into `bytes`, reusing its memory. Throws DataError as
// read_at() does, and if the record has more than 1 GiB.
void read_record(const Descriptor& file, const std::string& where, uint64_t begin, uint64_t size,
                 std::vector<uint8_t>& bytes);
// Returns the result of fstat. Throws DataError naming `path` if it fails.
struct stat status_of(int file, const std::string& path);
inline int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace trireme::data
