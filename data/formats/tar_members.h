// What is in a tar file, by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/files/descriptor.h"

struct archive;
struct archive_entry;

namespace trireme::data {

// To read the headers of a plain tar one after the other. Throws DataError naming the file when it
// is compressed or no tar at all.
std::unique_ptr<archive, int (*)(archive*)> open_tar(const Descriptor& file,
                                                     const std::string& path);
// What libarchive says of its latest failure.
std::string failure_of(archive* reader);
// Throws DataError with it.
[[noreturn]] void refuse_tar(archive* reader, const std::string& path);
// Whether all of its bytes lie in the tar file, one after the other.
bool is_plain_file(archive_entry* entry);

struct TarMember {
  std::string name;
  uint64_t offset = 0;  // of its first byte in the file
  uint64_t size = 0;
};

// Those that are plain files, in their order, as far as the file goes: `damage` (empty: none) says
// why that is not to its end. Throws DataError as open_tar does.
struct TarMembers {
  std::vector<TarMember> members;
  std::string damage;
};
TarMembers list_tar(const std::string& path);

}  // namespace trireme::data
