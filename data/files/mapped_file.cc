#include "data/files/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "data/files/descriptor.h"

namespace trireme::data {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file = open_file(path);
  const size_t size = status_of(file.number(), path).st_size;
  if (size == 0) return;  // mmap fails for empty files
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) {
    throw DataError(path, fmt::format("cannot be mapped: {}", std::strerror(errno)));
  }
  bytes_ = {static_cast<const uint8_t*>(memory), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace trireme::data
