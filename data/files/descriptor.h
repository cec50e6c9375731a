// Files that are open to be read.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <span>
#include <string>

#include "core/descriptor.h"

namespace trireme::data {

// To read. Throws DataError when it is not there, or no regular file.
Descriptor open_file(const std::string& path);
// Fills `bytes` from where they begin in the file. Throws DataError naming `where` when they are
// not all there.
void read_at(const Descriptor& file, const std::string& where, uint64_t begin,
             std::span<uint8_t> bytes);
// Throws DataError naming `path`.
struct stat status_of(int file, const std::string& path);

}  // namespace trireme::data
