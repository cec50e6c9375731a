#include "data/formats/tar_members.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/error.h"

namespace trireme::data {
namespace {

// Small, since after each image that is skipped one block is read in vain.
constexpr size_t kReadBytes = 16384;

// What a file that is no plain tar begins with.
struct Compression {
  std::string_view name;
  std::string_view begins;
};
constexpr std::array<Compression, 5> kCompressions{{{"gzip", "\x1f\x8b"},
                                                    {"zstd", "\x28\xb5\x2f\xfd"},
                                                    {"xz", "\xfd\x37zXZ"},
                                                    {"bzip2", "BZh"},
                                                    {"lz4", "\x04\x22\x4d\x18"}}};

void refuse_compressed(int file, const std::string& path) {
  std::array<char, 8> begin{};
  const ssize_t got = pread(file, begin.data(), begin.size(), 0);
  if (got < 0) throw DataError(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  const std::string_view bytes(begin.data(), got);
  for (const Compression& compression : kCompressions) {
    if (!bytes.starts_with(compression.begins)) continue;
    throw DataError(path, fmt::format("is compressed ({}), and samples can only be read at random "
                                      "from plain tar; unpack it",
                                      compression.name));
  }
}

}  // namespace

std::string failure_of(archive* reader) {
  const char* text = archive_error_string(reader);
  return text ? text : "cause unknown";
}

void refuse_tar(archive* reader, const std::string& path) {
  throw DataError(path, fmt::format("cannot be read as a tar file: {}", failure_of(reader)));
}

bool is_plain_file(archive_entry* entry) {
  return archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry) &&
         archive_entry_sparse_count(entry) == 0;
}

std::unique_ptr<archive, int (*)(archive*)> open_tar(const Descriptor& file,
                                                     const std::string& path) {
  refuse_compressed(file.number(), path);
  std::unique_ptr<archive, int (*)(archive*)> reader(archive_read_new(), archive_read_free);
  archive_read_support_filter_none(reader.get());
  archive_read_support_format_tar(reader.get());
  if (archive_read_open_fd(reader.get(), file.number(), kReadBytes) != ARCHIVE_OK) {
    refuse_tar(reader.get(), path);
  }
  return reader;
}

TarMembers list_tar(const std::string& path) {
  const Descriptor file = open_file(path);
  const auto bytes = static_cast<uint64_t>(status_of(file.number(), path).st_size);
  const auto reader = open_tar(file, path);
  TarMembers found;
  archive_entry* entry = nullptr;
  for (bool first = true;; first = false) {
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) return found;
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
      if (first) refuse_tar(reader.get(), path);
      found.damage = fmt::format("is damaged or cut off: {}", failure_of(reader.get()));
      return found;
    }
    const char* name = archive_entry_pathname(entry);
    if (!name || !is_plain_file(entry)) continue;
    const TarMember member{name, static_cast<uint64_t>(archive_filter_bytes(reader.get(), 0)),
                           static_cast<uint64_t>(archive_entry_size(entry))};
    if (member.offset > bytes || member.size > bytes - member.offset) {
      found.damage = fmt::format("is cut off within {}", member.name);
      return found;
    }
    found.members.push_back(member);
  }
}

}  // namespace trireme::data
