#include "data/formats/tar_index_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
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

// A temporary file that holds an index while it is built. Only one process at a time can lock it.
// It is renamed to its final path when it is complete. If a process is killed, the next one
// overwrites its temporary file.
class Draft {
 public:
  enum class State { kLocked, kBusy, kNotWritable };

  Draft(const std::string& path, bool wait) : path_(path), temporary_(path + kTemporarySuffix) {
    std::error_code ignored;  // on failure, opening the file fails too
    fs::create_directories(fs::path(path).parent_path(), ignored);
    while (true) {
      file_ = open(temporary_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
      if (file_ < 0) return;
      state_ = lock(wait);
      if (state_ != State::kLocked || still_exists()) return;
      close(file_);
    }
  }
  ~Draft() {
    if (file_ < 0) return;
    if (state_ == State::kLocked && !published_) unlink(temporary_.c_str());
    close(file_);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  State state() const { return state_; }

  // Writes the index and renames it to its final path. Returns false if it cannot be written.
  bool publish(std::span<const uint8_t> bytes) {
    try {
      NewFile file(path_);  // opens the same temporary file, which this process has locked
      published_ = true;
      file.write(std::as_bytes(bytes));
      file.finish();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

 private:
  State lock(bool wait) const {
    const int how = wait ? LOCK_EX : LOCK_EX | LOCK_NB;
    if (retry_interrupted([&] { return flock(file_, how); }) == 0) return State::kLocked;
    return errno == EWOULDBLOCK ? State::kBusy : State::kNotWritable;
  }
  // Returns false if another process renamed or removed the file before this process locked it.
  bool still_exists() const {
    struct stat locked {};
    struct stat current {};
    return fstat(file_, &locked) == 0 && stat(temporary_.c_str(), &current) == 0 &&
           locked.st_ino == current.st_ino && locked.st_dev == current.st_dev;
  }

  const std::string path_;       // final path
  const std::string temporary_;  // path while the index is built
  int file_ = -1;
  State state_ = State::kNotWritable;
  bool published_ = false;  // true from the start of writing: NewFile then removes the file
};

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
    Draft draft(path, when_busy == WhenBusy::kWait);
    if (draft.state() == Draft::State::kBusy) return std::nullopt;
    if (draft.state() == Draft::State::kNotWritable) continue;
    if (auto index = find(shard)) return index;  // another process has built it meanwhile
    TarIndex index = walk_tar(shard, labels_);
    if (!draft.publish(index.bytes())) return index;
    auto mapped = load(path, index.stamp());
    return mapped ? std::move(mapped) : std::move(index);
  }
  return walk_tar(shard, labels_);
}

}  // namespace trireme::data
