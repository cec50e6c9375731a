#include "data/formats/tar_index_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/installation.h"
#include "core/interrupted.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// Returns a file name that includes a hash of the path, as shards in different folders may have the
// same name.
std::string index_name(const std::string& shard) {
  std::error_code ignored;  // on failure, uses the path as it is
  const std::string path = fs::absolute(shard, ignored).lexically_normal().string();
  return fmt::format("{}-{:016x}.index", fs::path(shard).filename().string(),
                     XXH3_64bits(path.data(), path.size()));
}

std::optional<TarIndex> load(const std::string& path, const TarStamp& stamp) {
  try {
    return TarIndex::read(MappedFile(path), stamp);
  } catch (const DataError&) {
    return std::nullopt;  // the file does not exist
  }
}

// The right to build an index, by a lock on PATH.lock. Only one process at a time has it. The file
// is removed at the end; that of a killed process by the next one that builds the index.
class BuildLock {
 public:
  enum class State { kLocked, kBusy, kNotWritable };

  BuildLock(const std::string& path, bool wait) : path_(path + ".lock") {
    std::error_code ignored;  // on failure, opening the file fails too
    fs::create_directories(fs::path(path).parent_path(), ignored);
    while (true) {
      file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
      state_ = file_ < 0 ? State::kNotWritable : lock(wait);
      // The process that had the lock may have removed the file.
      if (state_ != State::kLocked || is_file_at(file_, path_)) return;
      close(file_);
    }
  }
  ~BuildLock() {
    if (file_ < 0) return;
    if (state_ == State::kLocked) unlink(path_.c_str());
    close(file_);
  }
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

  State state() const { return state_; }

 private:
  State lock(bool wait) const {
    const int how = wait ? LOCK_EX : LOCK_EX | LOCK_NB;
    if (retry_interrupted([&] { return flock(file_, how); }) == 0) return State::kLocked;
    return errno == EWOULDBLOCK ? State::kBusy : State::kNotWritable;
  }

  const std::string path_;
  int file_ = -1;
  State state_ = State::kNotWritable;
};

// Returns false if the index cannot be written.
bool save(const std::string& path, const TarIndex& index) {
  try {
    NewFile file(path);
    file.write(std::as_bytes(index.bytes()));
    file.finish();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TarIndexFiles::TarIndexFiles(std::string folder, LabelSource labels)
    : folder_(std::move(folder)), labels_(std::move(labels)) {}

std::vector<std::string> TarIndexFiles::candidate_paths(const std::string& shard) const {
  if (!folder_.empty()) return {folder_ + "/" + index_name(shard)};
  std::vector<std::string> found{shard + ".index"};
  if (const std::string cache = cache_folder(); !cache.empty()) {
    found.push_back(cache + "/" + index_name(shard));
  }
  return found;
}

std::optional<TarIndex> TarIndexFiles::find(const std::string& shard) const {
  const TarStamp stamp = stamp_of(shard, labels_);
  for (const std::string& path : candidate_paths(shard)) {
    if (auto index = load(path, stamp)) return index;
  }
  return std::nullopt;
}

std::optional<TarIndex> TarIndexFiles::make(const std::string& shard, WhenBusy when_busy) const {
  for (const std::string& path : candidate_paths(shard)) {
    const BuildLock lock(path, when_busy == WhenBusy::kWait);
    if (lock.state() == BuildLock::State::kBusy) return std::nullopt;
    if (lock.state() == BuildLock::State::kNotWritable) continue;
    if (auto index = find(shard)) return index;  // another process has built it meanwhile
    TarIndex index = walk_tar(shard, labels_);
    if (!save(path, index)) return index;
    auto mapped = load(path, index.stamp());
    return mapped ? std::move(mapped) : std::move(index);
  }
  return walk_tar(shard, labels_);
}

}  // namespace trireme::data
