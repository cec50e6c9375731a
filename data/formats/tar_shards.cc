#include "data/formats/tar_shards.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <thread>
#include <utility>

#include "core/control_groups.h"
#include "core/error.h"

namespace trireme::data {
namespace {

class IndexOpener {
 public:
  IndexOpener(const std::vector<std::string>& shards, const TarIndexFiles& files,
              bool stop_at_problems)
      : shards_(shards),
        files_(files),
        stop_at_problems_(stop_at_problems),
        opened_(shards.size()) {}

  std::vector<OpenedIndex> run(const std::function<void(std::string_view)>& progress) {
    working_ = std::min<size_t>(shards_.size(), static_cast<size_t>(usable_cores()));
    {
      std::vector<std::jthread> workers;
      for (size_t i = working_; i > 0; --i) workers.emplace_back([this] { work(); });
      forward_progress(progress);
    }
    return std::move(opened_);
  }

 private:
  using WhenBusy = TarIndexFiles::WhenBusy;

  void work() {
    std::vector<size_t> busy;
    for (size_t i = next_++; i < shards_.size() && !stopped_; i = next_++) {
      if (!open(i, WhenBusy::kSkip)) busy.push_back(i);
    }
    for (const size_t i : busy) {
      if (!stopped_) open(i, WhenBusy::kWait);
    }
    const std::lock_guard lock(mutex_);
    --working_;
    changed_.notify_one();
  }

  // Returns false if another process is indexing the shard.
  bool open(size_t i, WhenBusy when_busy) {
    OpenedIndex& opened = opened_[i];
    try {
      opened.index = files_.find(shards_[i]);
      if (!opened.index) {
        report(i);
        opened.index = files_.make(shards_[i], when_busy);
      }
      if (!opened.index) return false;
      if (stop_at_problems_ && opened.index->problem_count() > 0) stopped_ = true;
    } catch (...) {
      opened.error = std::current_exception();
      stopped_ = true;
    }
    return true;
  }

  void report(size_t i) {
    const std::lock_guard lock(mutex_);
    message_ = fmt::format("indexing shard {} of {}", i + 1, shards_.size());
    changed_.notify_one();
  }

  // Passes messages of the workers to `progress` until all workers have ended.
  void forward_progress(const std::function<void(std::string_view)>& progress) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return working_ == 0 || !message_.empty(); });
      const std::string message = std::exchange(message_, {});
      if (message.empty()) return;
      lock.unlock();
      if (progress) progress(message);
      lock.lock();
    }
  }

  const std::vector<std::string>& shards_;
  const TarIndexFiles& files_;
  const bool stop_at_problems_;
  std::vector<OpenedIndex> opened_;  // each element is accessed by one worker only
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::string message_;  // latest progress message; empty if it was forwarded
  size_t working_ = 0;   // workers that have not ended
};

size_t max_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  return std::clamp<rlim_t>(limit.rlim_cur / 4, 8, 1 << 16);
}

}  // namespace

std::vector<OpenedIndex> open_indexes(const std::vector<std::string>& shards,
                                      const TarIndexFiles& files, bool stop_at_problems,
                                      const std::function<void(std::string_view)>& progress) {
  return IndexOpener(shards, files, stop_at_problems).run(progress);
}

ShardFiles::ShardFiles(size_t shards) : max_open_(max_open_files()), slots_(shards) {}

std::shared_ptr<const Descriptor> ShardFiles::open(size_t shard, const std::string& path,
                                                   const TarStamp& stamp) {
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_[shard];
    slot.used = ++uses_;
    if (slot.file) return slot.file;
  }
  // Opened without the lock, so that other threads need not wait. Two threads may open the same
  // shard at once; the second one then drops its file.
  auto file = std::make_shared<const Descriptor>(open_file(path));
  if (!stamp.matches(status_of(file->number(), path))) {
    throw DataError(path, "has changed since it was indexed; restart to index it again");
  }
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[shard];
  if (slot.file) return slot.file;
  if (open_ >= max_open_) evict();
  slot.file = std::move(file);
  ++open_;
  return slot.file;
}

// Threads that are reading the evicted file hold a reference, which keeps it open until then.
void ShardFiles::evict() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.file && (!oldest || slot.used < oldest->used)) oldest = &slot;
  }
  oldest->file.reset();
  --open_;
}

}  // namespace trireme::data
