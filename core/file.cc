#include "core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/error.h"
#include "core/interrupted.h"
#include "core/memory_limit.h"

namespace trireme {
namespace {

// Size of a write; enough to keep a disk busy.
constexpr size_t kBlock = 8 << 20;

// Returns true if the block can be written at this offset with O_DIRECT.
bool aligned(std::span<const std::byte> block, uint64_t at) {
  const auto address = reinterpret_cast<uintptr_t>(block.data());
  return (address | at | block.size()) % kDirectAlignment == 0;
}

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw Error(fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(errno)));
}

[[noreturn]] void fail_to_read(const std::filesystem::path& path) {
  throw DataError(path.string(), std::string("cannot be read: ") + std::strerror(errno));
}

Descriptor open_regular(int folder, const char* name, const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe must not block forever.
  Descriptor file(::openat(folder, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) fail_to_read(path);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw DataError(path.string(), "is not a regular file");
  }
  return file;
}

Descriptor open_new(const std::filesystem::path& path) {
  const auto open_it = [&] {
    // O_NONBLOCK: opening a pipe must not block forever.
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                  0666);
  };
  int file = open_it();
  const bool link_or_pipe = file < 0 && (errno == ELOOP || errno == ENXIO);
  if (link_or_pipe && ::unlink(path.c_str()) == 0) file = open_it();
  return Descriptor(file);
}

// Returns the path if a file may replace what is there. Throws Error if it is a folder or a device,
// or in /dev, where /dev/stdout, for example, is a link: root would replace them for all programs.
const std::filesystem::path& checked_target(const std::filesystem::path& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    errno = EISDIR;
    fail(path, "be created");
  }
  const bool device =
      std::filesystem::is_character_file(path, none) || std::filesystem::is_block_file(path, none);
  if (!device && path.lexically_normal().parent_path() != "/dev") return path;
  throw Error(path.string() + ": is a device, which a file would replace; name a file");
}

bool lock_now(int file) {
  return retry_interrupted([&] { return ::flock(file, LOCK_EX | LOCK_NB); }) == 0;
}

// Removes the temporary file of a writer that was killed. Returns false if the name is in use: by a
// writer, or by something that is not a temporary file.
bool remove_unused(const std::filesystem::path& temporary) {
  // Locks on network file systems require write access.
  const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) return errno == ENOENT;
  struct stat status {};
  if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (!lock_now(file.number())) return false;
  // Its writer may have renamed it meanwhile. Nobody else removes it while it is locked.
  return !is_file_at(file.number(), temporary) || ::unlink(temporary.c_str()) == 0;
}

// Creates the temporary file of a new file, locks it and sets `temporary` to its path.
Descriptor create_temporary(const std::filesystem::path& path, std::filesystem::path& temporary) {
  constexpr size_t kMaxName = 230;  // file systems allow 255 bytes
  constexpr int kMaxTemporaries = 100;
  const auto prefix = path.parent_path() / path.filename().string().substr(0, kMaxName);
  for (int n = 1; n <= kMaxTemporaries;) {
    temporary = fmt::format("{}.trireme-{}{}", prefix.string(), n, kTemporarySuffix);
    Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!file.is_open()) {
      if (errno != EEXIST) fail(path, "be created");
      if (!remove_unused(temporary)) ++n;
      continue;
    }
    // Another writer may lock and remove the file before it is locked here. If the file system has
    // no locks, no writer does.
    const bool locked = lock_now(file.number()) || errno != EWOULDBLOCK;
    if (locked && is_file_at(file.number(), temporary)) return file;
  }
  throw Error(
      fmt::format("{}: cannot be created: {} files of this name with .trireme-N{} exist; "
                  "remove those that no process writes",
                  path.string(), kMaxTemporaries, kTemporarySuffix));
}

XXH3_state_t* state(void* hash) { return static_cast<XXH3_state_t*>(hash); }

}  // namespace

DurableFile::DurableFile(const std::filesystem::path& path, std::stop_token stop)
    : DurableFile(path, open_new(path), std::move(stop)) {}

DurableFile::DurableFile(const std::filesystem::path& path, Descriptor file, std::stop_token stop)
    : path_(path), stop_(std::move(stop)), file_(std::move(file)) {
  if (!file_.is_open()) fail(path_, "be created");
  hash_ = XXH3_createState();
  XXH3_64bits_reset(state(hash_));
}

DurableFile::~DurableFile() { XXH3_freeState(state(hash_)); }

void DurableFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    if (stop_.stop_requested()) throw Error(path_.string() + ": writing was canceled");
    const auto block = data.first(std::min(kBlock, data.size()));
    XXH3_64bits_update(state(hash_), block.data(), block.size());
    write_block(block);
    data = data.subspan(block.size());
  }
}

void DurableFile::write_block(std::span<const std::byte> block) {
  const int file = file_.number();
  const auto begin = static_cast<off_t>(bytes_);
  const auto bytes = static_cast<off_t>(block.size());
  // Bypass the page cache if the file system supports it: this avoids a copy and leaves memory to
  // training.
  bool direct = aligned(block, bytes_) && ::fcntl(file, F_SETFL, O_DIRECT) == 0;
  bytes_ += block.size();
  while (!block.empty()) {
    const ssize_t written =
        retry_interrupted([&] { return ::write(file, block.data(), block.size()); });
    // O_DIRECT is not supported here, or the rest of a short write is not aligned.
    if (written < 0 && errno == EINVAL && direct) {
      direct = ::fcntl(file, F_SETFL, 0) != 0;
      if (!direct) continue;
    }
    if (written <= 0) fail(path_, "be written");
    block = block.subspan(written);
  }
  // Start writeback of cached data. Errors are ignored here; finish() reports them.
  if (direct) ::fcntl(file, F_SETFL, 0);
  ::sync_file_range(file, begin, bytes, SYNC_FILE_RANGE_WRITE);
}

FileDigest DurableFile::digest() const { return {bytes_, XXH3_64bits_digest(state(hash_))}; }

void DurableFile::sync() {
  if (::fsync(file_.number()) != 0) fail(path_, "be synchronized to disk");
}

void DurableFile::finish() {
  sync();
  if (::close(file_.release()) != 0) fail(path_, "be closed");
}

NewFile::NewFile(const std::filesystem::path& path)
    : path_(checked_target(path)), file_(path_, create_temporary(path_, temporary_), {}) {
  struct stat old {};
  if (::stat(path_.c_str(), &old) != 0 || !S_ISREG(old.st_mode)) return;
  // Some file systems have no permissions.
  static_cast<void>(::fchmod(file_.file_.number(), old.st_mode & 0777) == 0);
}

NewFile::~NewFile() {
  if (!finished_) ::unlink(temporary_.c_str());
}

void NewFile::finish() {
  file_.sync();
  rename_file(temporary_, path_);
  finished_ = true;
  sync_folder(path_.parent_path());
}

void write_durably(const std::filesystem::path& path, const std::string& text) {
  DurableFile file(path);
  file.write(text);
  file.finish();
}

void replace_durably(const std::filesystem::path& path, const std::string& text) {
  NewFile file(path);
  file.write(text);
  file.finish();
}

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw Error(fmt::format("{}: cannot be renamed to {}: {}", from.string(), to.string(),
                          std::strerror(errno)));
}

void create_folders(const std::filesystem::path& path) {
  std::error_code none;
  if (path.empty() || std::filesystem::is_directory(path, none)) return;
  create_folders(path.parent_path());
  // EEXIST: another rank or run may have created it in the meantime.
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) fail(path, "be created");
  sync_folder(path.parent_path());
}

bool is_file_at(int file, const std::filesystem::path& path) {
  struct stat own {};
  struct stat found {};
  return ::fstat(file, &own) == 0 && ::stat(path.c_str(), &found) == 0 &&
         own.st_dev == found.st_dev && own.st_ino == found.st_ino;
}

Descriptor open_own_folder(const std::filesystem::path& path) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.is_open()) return folder;
  std::error_code none;
  if (std::filesystem::is_symlink(path, none)) {
    throw Error(path.string() +
                ": is a symbolic link, which is not followed, because old files are deleted there; "
                "link the folder that contains it instead");
  }
  fail(path, "be opened");
}

bool remove_folder(const Descriptor& parent, const std::string& name,
                   std::span<const char* const> files) {
  const Descriptor folder(
      ::openat(parent.number(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.is_open()) {
    if (errno == ELOOP || errno == ENOTDIR) ::unlinkat(parent.number(), name.c_str(), 0);
    return true;
  }
  for (const char* file : files) ::unlinkat(folder.number(), file, 0);
  return ::unlinkat(parent.number(), name.c_str(), AT_REMOVEDIR) == 0 || errno != ENOTEMPTY;
}

void sync_folder(const std::filesystem::path& path) {
  const Descriptor folder(
      ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) fail(path, "be opened");
  // EINVAL: the file system does not support fsync on folders.
  if (::fsync(folder.number()) != 0 && errno != EINVAL) fail(path, "be synchronized to disk");
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written =
        retry_interrupted([&] { return ::write(file, text.data(), text.size()); });
    if (written <= 0) return false;
    text.remove_prefix(written);
  }
  return true;
}

Descriptor open_to_read(const std::filesystem::path& path) {
  return open_regular(AT_FDCWD, path.c_str(), path);
}

Descriptor open_to_read(const Descriptor& folder, const std::filesystem::path& path) {
  return open_regular(folder.number(), path.filename().c_str(), path);
}

void read_pieces(const Descriptor& file, const std::filesystem::path& path,
                 const std::function<void(std::string_view)>& take) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) fail_to_read(path);
  std::vector<char> buffer(std::clamp<size_t>(status.st_size + 1, 4096, 1 << 20));
  for (off_t at = 0;;) {
    const ssize_t got =
        retry_interrupted([&] { return ::pread(file.number(), buffer.data(), buffer.size(), at); });
    if (got < 0) fail_to_read(path);
    if (got == 0) return;
    take(std::string_view(buffer.data(), got));
    at += got;
  }
}

FileDigest digest_of(const Descriptor& file, const std::filesystem::path& path) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash(XXH3_createState(),
                                                                             XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  FileDigest digest;
  read_pieces(file, path, [&](std::string_view piece) {
    XXH3_64bits_update(hash.get(), piece.data(), piece.size());
    digest.bytes += piece.size();
  });
  digest.hash = XXH3_64bits_digest(hash.get());
  return digest;
}

FileDigest digest_of(const std::filesystem::path& path) {
  return digest_of(open_to_read(path), path);
}

std::string read_text(const Descriptor& file, const std::filesystem::path& path) {
  std::string text;
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) fail_to_read(path);
  const auto size = static_cast<uint64_t>(status.st_size);
  require_fits_memory(path.string(), size);
  try {
    text.reserve(size);
    read_pieces(file, path, [&](std::string_view piece) { text += piece; });
  } catch (const std::bad_alloc&) {
    fail_out_of_memory(path.string(), size);
  }
  return text;
}

std::string read_text(const std::filesystem::path& path) {
  return read_text(open_to_read(path), path);
}

}  // namespace trireme
