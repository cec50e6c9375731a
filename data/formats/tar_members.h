// Lists the members of tar files, with libarchive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/files/descriptor.h"

struct archive;
struct archive_entry;

namespace trireme::data {

// Returns a libarchive reader for the headers of an uncompressed tar file. Throws DataError naming
// the file if it is compressed or not a tar file.
std::unique_ptr<archive, int (*)(archive*)> open_tar(const Descriptor& file,
                                                     const std::string& path);
// Returns the position of the header that was read last or, if none could be read, how far the file
// was read. After ARCHIVE_EOF, that is the end of the file if the end-of-archive marker is missing.
uint64_t header_position(archive* reader);
// Returns libarchive's message about its last failure.
std::string error_message_of(archive* reader);
// Throws DataError with that message.
[[noreturn]] void throw_tar_error(archive* reader, const std::string& path);
// Returns true for a regular file whose bytes are contiguous in the tar file: neither a link nor a
// sparse file.
bool is_plain_file(archive_entry* entry);

// Returns what is wrong with the end of a tar file of this size whose members end at byte `at`:
// blocks of zeros must follow, and nothing else. Empty if nothing is.
std::string problem_of_end(const Descriptor& file, uint64_t at, uint64_t bytes);

// Returns the name of a member, or null if it cannot be read. A name that this locale cannot
// represent is in UTF-8.
const char* name_of_member(archive_entry* entry);

struct TarMember {
  std::string name;
  uint64_t offset = 0;  // position of its first byte in the tar file
  uint64_t size = 0;
};

struct TarMembers {
  std::vector<TarMember> members;
  std::vector<std::string> unreadable;  // names of links, special files and sparse files
  std::string damage;  // what is wrong with the file behind them; empty if nothing is
};
// Returns the members that are plain files, in their order, up to the first damage. Throws
// DataError as open_tar() does.
TarMembers list_tar(const std::string& path);

}  // namespace trireme::data
