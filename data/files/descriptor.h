// Functions to open and read files by descriptor.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <span>
#include <string>

#include "core/descriptor.h"

namespace trireme::data {

// Opens a file for reading. Throws DataError if it is missing or not a regular file.
Descriptor open_file(const std::string& path);
// Fills `bytes` from position `begin` of the file. Throws DataError naming `where` if the file is
// too short or cannot be read.
void read_at(const Descriptor& file, const std::string& where, uint64_t begin,
             std::span<uint8_t> bytes);
// Returns the result of fstat. Throws DataError naming `path` if it fails.
struct stat status_of(int file, const std::string& path);

}  // namespace trireme::data
