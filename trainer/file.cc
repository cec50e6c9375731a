#include "trainer/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"

namespace trireme {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw Error(fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(errno)));
}

int open_or_fail(const std::filesystem::path& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (file < 0)
    throw DataError(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  return file;
}

XXH3_state_t* state(void* hash) { return static_cast<XXH3_state_t*>(hash); }

}  // namespace

DurableFile::DurableFile(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_ < 0) fail(path_, "be created");
  hash_ = XXH3_createState();
  XXH3_64bits_reset(state(hash_));
}

DurableFile::~DurableFile() {
  if (file_ >= 0) ::close(file_);
  XXH3_freeState(state(hash_));
}

void DurableFile::write(const void* data, size_t bytes) {
  XXH3_64bits_update(state(hash_), data, bytes);
  bytes_ += bytes;
  for (auto* from = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t written = ::write(file_, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(path_, "be written");
    from += written;
    bytes -= static_cast<size_t>(written);
  }
}

FileDigest DurableFile::finish() {
  if (::fsync(file_) != 0) fail(path_, "be synchronised to disk");
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0) fail(path_, "be closed");
  return {bytes_, XXH3_64bits_digest(state(hash_))};
}

FileDigest write_durably(const std::filesystem::path& path, const std::string& text) {
  DurableFile file(path);
  file.write(text.data(), text.size());
  return file.finish();
}

void replace_durably(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path temporary = path.string() + ".tmp";
  write_durably(temporary, text);
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "be replaced");
  sync_folder(path.parent_path());
}

void sync_folder(const std::filesystem::path& path) {
  const int folder = ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail(path, "be opened");
  const bool synced = ::fsync(folder) == 0;
  ::close(folder);
  if (!synced) fail(path, "be synchronised to disk");
}

FileDigest digest_of(const std::filesystem::path& path) {
  const int file = open_or_fail(path, O_RDONLY);
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
  const int file = open_or_fail(path, O_RDONLY);
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
