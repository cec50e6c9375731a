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

// Shards of different folders may be named alike.
std::string name_of(const std::string& shard) {
  std::error_code ignored;  // then the path as it is
  const std::string path = fs::absolute(shard, ignored).lexically_normal().string();
  return fmt::format("{}-{:016x}.index", fs::path(shard).filename().string(),
                     XXH3_64bits(path.data(), path.size()));
}

std::optional<TarIndex> load(const std::string& path, const TarStamp& stamp) {
  try {
    return TarIndex::read(MappedFile(path), stamp);
  } catch (const DataError&) {
    return std::nullopt;  // there is none
  }
}

// An index that is being made: a file that one process at a time can have, and that takes its place
// when it is whole. What a killed process leaves of one, the next overwrites.
class Draft {
 public:
  enum class State { kMine, kBusy, kImpossible };

  Draft(const std::string& place, bool wait) : place_(place), path_(place + kTemporarySuffix) {
    std::error_code ignored;  // then it cannot be opened either
    fs::create_directories(fs::path(place).parent_path(), ignored);
    while (true) {
      file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      if (file_ < 0) return;
      state_ = lock(wait);
      if (state_ != State::kMine || still_there()) return;
      close(file_);
    }
  }
  ~Draft() {
    if (file_ < 0) return;
    if (state_ == State::kMine && !placed_) unlink(path_.c_str());
    close(file_);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  State state() const { return state_; }

  // False when it cannot be written.
  bool place(std::span<const uint8_t> bytes) {
    try {
      NewFile file(place_);  // the one that is locked
      placed_ = true;
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
    if (retry_interrupted([&] { return flock(file_, how); }) == 0) return State::kMine;
    return errno == EWOULDBLOCK ? State::kBusy : State::kImpossible;
  }
  // Another process may have put it in its place, or taken it away, before the lock was ours.
  bool still_there() const {
    struct stat mine {};
    struct stat named {};
    return fstat(file_, &mine) == 0 && stat(path_.c_str(), &named) == 0 &&
           mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
  }

  const std::string place_;
  const std::string path_;
  int file_ = -1;
  State state_ = State::kImpossible;
  bool placed_ = false;  // or removed
};

}  // namespace

TarIndexFiles::TarIndexFiles(std::string folder, LabelSource labels)
    : folder_(std::move(folder)), labels_(std::move(labels)) {}

std::vector<std::string> TarIndexFiles::places(const std::string& shard) const {
  if (!folder_.empty()) return {folder_ + "/" + name_of(shard)};
  std::vector<std::string> found{shard + ".index"};
  if (const std::string cache = cache_folder(); !cache.empty()) {
    found.push_back(cache + "/" + name_of(shard));
  }
  return found;
}

std::optional<TarIndex> TarIndexFiles::find(const std::string& shard) const {
  const TarStamp stamp = stamp_of(shard, labels_);
  for (const std::string& place : places(shard)) {
    if (auto index = load(place, stamp)) return index;
  }
  return std::nullopt;
}

std::optional<TarIndex> TarIndexFiles::make(const std::string& shard, WhenBusy when_busy) const {
  for (const std::string& place : places(shard)) {
    Draft draft(place, when_busy == WhenBusy::kWait);
    if (draft.state() == Draft::State::kBusy) return std::nullopt;
    if (draft.state() == Draft::State::kImpossible) continue;
    if (auto index = find(shard)) return index;  // another process was faster
    TarIndex index = walk_tar(shard, labels_);
    if (!draft.place(index.bytes())) return index;
    auto mapped = load(place, index.stamp());
    return mapped ? std::move(mapped) : std::move(index);
  }
  return walk_tar(shard, labels_);
}

}  // namespace trireme::data
