#include "data/files/descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/interrupted.h"

namespace trireme::data {

Descriptor open_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not block.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    throw DataError(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  const struct stat status = status_of(file.number(), path);
  if (S_ISDIR(status.st_mode)) throw DataError(path, "is a folder");
  if (!S_ISREG(status.st_mode)) throw DataError(path, "is not a regular file");
  return file;
}

void read_at(const Descriptor& file, const std::string& where, uint64_t begin,
             std::span<uint8_t> bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got = retry_interrupted([&] {
      return pread(file.number(), bytes.data() + done, bytes.size() - done, begin + done);
    });
    if (got < 0) throw DataError(where, fmt::format("reading failed: {}", std::strerror(errno)));
    if (got == 0) {
      throw DataError(where,
                      fmt::format("the file ends within this record, at byte {}", begin + done));
    }
    done += got;
  }
}

void read_record(const Descriptor& file, const std::string& where, uint64_t begin, uint64_t size,
                 std::vector<uint8_t>& bytes) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  if (size > kMaxBytes) {
    throw DataError(where, fmt::format("has {} bytes; a record has at most {}", size, kMaxBytes));
  }
  bytes.resize(size);
  read_at(file, where, begin, bytes);
}

struct stat status_of(int file, const std::string& path) {
  struct stat status {};
  if (fstat(file, &status) != 0) {
    throw DataError(path, fmt::format("stat failed: {}", std::strerror(errno)));
  }
  return status;
}

}  // namespace trireme::data
