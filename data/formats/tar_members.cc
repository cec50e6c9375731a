#include "data/formats/tar_members.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/error.h"

namespace trireme::data {
namespace {

// Small, because libarchive reads one block after each skipped image for nothing.
constexpr size_t kReadBytes = 16384;

struct Compression {
  std::string_view name;
  std::string_view magic;  // first bytes of a file
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
    if (!bytes.starts_with(compression.magic)) continue;
    throw DataError(path, fmt::format("is compressed ({}), but random access to samples needs a "
                                      "plain tar file; decompress it",
                                      compression.name));
  }
}

}  // namespace

std::string error_message_of(archive* reader) {
  const char* text = archive_error_string(reader);
  return text ? text : "no reason is known; members stored as sparse files are not supported";
}

void throw_tar_error(archive* reader, const std::string& path) {
  throw DataError(path, fmt::format("cannot be read as a tar file: {}", error_message_of(reader)));
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
    throw_tar_error(reader.get(), path);
  }
  return reader;
}

uint64_t header_position(archive* reader) {
  const int64_t position = archive_read_header_position(reader);
  return static_cast<uint64_t>(position >= 0 ? position : archive_filter_bytes(reader, 0));
}

std::string problem_of_end(const Descriptor& file, uint64_t at, uint64_t bytes) {
  if (at >= bytes) {
    return fmt::format("is truncated: it ends at byte {} without an end-of-archive marker", bytes);
  }
  std::array<char, 65536> block;
  while (at < bytes) {
    const ssize_t got = pread(file.number(), block.data(), block.size(), static_cast<off_t>(at));
    if (got <= 0) return fmt::format("cannot be read at byte {}", at);
    const auto end = block.begin() + got;
    const auto other = std::find_if(block.begin(), end, [](char c) { return c != 0; });
    at += static_cast<uint64_t>(other - block.begin());
    if (other == end) continue;
    return fmt::format(
        "has data after the end of its archive, at byte {}; is it a concatenation of several "
        "archives?",
        at);
  }
  return "";
}

const char* name_of_member(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  return name ? name : archive_entry_pathname_utf8(entry);
}

TarMembers list_tar(const std::string& path) {
  const Descriptor file = open_file(path);
  const auto bytes = static_cast<uint64_t>(status_of(file.number(), path).st_size);
  const auto reader = open_tar(file, path);
  TarMembers found;
  archive_entry* entry = nullptr;
  for (bool first = true;; first = false) {
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) {
      found.damage = problem_of_end(file, header_position(reader.get()), bytes);
      return found;
    }
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
      if (first) throw_tar_error(reader.get(), path);
      found.damage = fmt::format("is damaged or truncated: {}", error_message_of(reader.get()));
      return found;
    }
    const char* name = name_of_member(entry);
    if (!name) {
      found.damage = fmt::format("the name of the member at byte {} cannot be read",
                                 header_position(reader.get()));
      return found;
    }
    if (!is_plain_file(entry)) {
      if (archive_entry_filetype(entry) != AE_IFDIR) found.unreadable.emplace_back(name);
      continue;
    }
    const TarMember member{name, static_cast<uint64_t>(archive_filter_bytes(reader.get(), 0)),
                           static_cast<uint64_t>(archive_entry_size(entry))};
    if (member.offset > bytes || member.size > bytes - member.offset) {
      found.damage = fmt::format("is truncated within {}", member.name);
      return found;
    }
    found.members.push_back(member);
  }
}

}  // namespace trireme::data
