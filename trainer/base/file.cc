#include "trainer/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"

namespace trireme {
namespace {

// Written at once: enough to keep a disk busy.
constexpr size_t kBlock = 8 << 20;

// Whether it can go to this place of a file straight from memory.
bool aligned(std::span<const std::byte> block, uint64_t at) {
  const auto address = reinterpret_cast<uintptr_t>(block.data());
  return (address | at | block.size()) % kDirectAlignment == 0;
}

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw Error(fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(errno)));
}

// Not a pipe either, on which opening or reading might wait for ever.
int open_to_read(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0)
    throw DataError(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  struct stat status {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) return file;
  ::close(file);
  throw DataError(path.string(), "is not a regular file");
}

XXH3_state_t* state(void* hash) { return static_cast<XXH3_state_t*>(hash); }

}  // namespace

DurableFile::DurableFile(const std::filesystem::path& path, std::stop_token stop)
    : path_(path),
      stop_(std::move(stop)),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_ < 0) fail(path_, "be created");
  hash_ = XXH3_createState();
  XXH3_64bits_reset(state(hash_));
}

DurableFile::~DurableFile() {
  if (file_ >= 0) ::close(file_);
  XXH3_freeState(state(hash_));
}

void DurableFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    if (stop_.stop_requested()) throw Error(path_.string() + ": given up half written");
    const auto block = data.first(std::min(kBlock, data.size()));
    XXH3_64bits_update(state(hash_), block.data(), block.size());
    write_block(block);
    data = data.subspan(block.size());
  }
}

void DurableFile::write_block(std::span<const std::byte> block) {
  const auto begin = static_cast<off_t>(bytes_);
  const auto bytes = static_cast<off_t>(block.size());
  // Past the page cache, where the file system can: no copy, and no memory that training misses.
  bool direct = aligned(block, bytes_) && ::fcntl(file_, F_SETFL, O_DIRECT) == 0;
  bytes_ += block.size();
  while (!block.empty()) {
    const ssize_t written = ::write(file_, block.data(), block.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && direct) {  // it cannot, or not the rest of a short write
      direct = ::fcntl(file_, F_SETFL, 0) != 0;
      if (!direct) continue;
    }
    if (written <= 0) fail(path_, "be written");
    block = block.subspan(static_cast<size_t>(written));
  }
  // What went into the cache may begin to leave it. Only wishes: finish() tells what became of it.
  if (direct) ::fcntl(file_, F_SETFL, 0);
  ::sync_file_range(file_, begin, bytes, SYNC_FILE_RANGE_WRITE);
}

FileDigest DurableFile::digest() const { return {bytes_, XXH3_64bits_digest(state(hash_))}; }

void DurableFile::finish() {
  if (::fsync(file_) != 0) fail(path_, "be synchronised to disk");
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0) fail(path_, "be closed");
}

void write_durably(const std::filesystem::path& path, const std::string& text) {
  DurableFile file(path);
  file.write(text);
  file.finish();
}

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw Error(fmt::format("{}: cannot be renamed to {}: {}", from.string(), to.string(),
                          std::strerror(errno)));
}

void replace_durably(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path temporary = path.string() + kTemporaryText;
  write_durably(temporary, text);
  rename_file(temporary, path);
  sync_folder(path.parent_path());
}

void create_folders(const std::filesystem::path& path) {
  std::error_code none;
  if (path.empty() || std::filesystem::is_directory(path, none)) return;
  create_folders(path.parent_path());
  // Another rank or run may have been faster.
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) fail(path, "be created");
  sync_folder(path.parent_path());
}

void sync_folder(const std::filesystem::path& path) {
  const int folder = ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail(path, "be opened");
  // EINVAL: a file system that has no such thing.
  const int reason = ::fsync(folder) == 0 || errno == EINVAL ? 0 : errno;
  ::close(folder);
  errno = reason;
  if (reason != 0) fail(path, "be synchronised to disk");
}

FileDigest digest_of(const std::filesystem::path& path) {
  const int file = open_to_read(path);
  XXH3_state_t* hash = XXH3_createState();
  XXH3_64bits_reset(hash);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> guard(hash, XXH3_freeState);
  std::vector<char> buffer(1 << 20);
  FileDigest digest;
  for (;;) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int reason = errno;
      ::close(file);
      throw DataError(path.string(), std::string("cannot be read: ") + std::strerror(reason));
    }
    if (got == 0) break;
    XXH3_64bits_update(hash, buffer.data(), static_cast<size_t>(got));
    digest.bytes += static_cast<uint64_t>(got);
  }
  ::close(file);
  digest.hash = XXH3_64bits_digest(hash);
  return digest;
}

std::string read_text(const std::filesystem::path& path) {
  const int file = open_to_read(path);
  std::string text;
  char buffer[16384];
  ssize_t got;
  while ((got = ::read(file, buffer, sizeof buffer)) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  const int reason = errno;
  ::close(file);
  if (got < 0)
    throw DataError(path.string(), std::string("cannot be read: ") + std::strerror(reason));
  return text;
}

}  // namespace trireme
