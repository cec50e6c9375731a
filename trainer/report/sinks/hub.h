// Passes the records of a run to its sinks. Each sink has its own thread and bounded queue, so that
// a full disk, a hung file system or a slow reader can neither stop nor slow training. Records that
// find the queue full, or that arrive after the sink has failed, are dropped and counted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/report/sinks/sink.h"

namespace trireme::train {

// Counts the records dropped by each sink. Thread-safe.
class DropCounts {
 public:
  struct Count {
    std::string sink;
    int64_t records = 0;
  };
  std::vector<Count> get() const;
  // Returns the counter of a sink. The reference stays valid as long as this object.
  std::atomic<int64_t>& of(const std::string& sink);

 private:
  mutable std::mutex mutex_;
  std::deque<std::pair<std::string, std::atomic<int64_t>>> counts_;
};

// Owned by the Reporter.
class MetricsHub {
 public:
  using Seconds = std::chrono::duration<double>;
  static constexpr size_t kCapacity = 8192;  // records per queue

  MetricsHub() = default;
  // Waits a few seconds, for all sinks together, until they have written their queues. The thread
  // of a sink that hangs is detached and leaked.
  ~MetricsHub();
  MetricsHub(const MetricsHub&) = delete;
  MetricsHub& operator=(const MetricsHub&) = delete;

  void add(std::unique_ptr<Sink> sink, size_t capacity = kCapacity);

  enum class When {
    kSoon,  // within a fraction of a second, batched with other records
    kNow,   // immediately
  };
  // Queues the record for all sinks that want it; never waits for one. The returned pointer expires
  // when all of them have handled the record.
  std::weak_ptr<const MetricsEvent> write(MetricsRecord record, When when = When::kSoon);

 private:
  struct Worker;

 public:
  // A flush in progress of the records queued before it. May outlive the hub.
  class PendingFlush {
   public:
    // Blocks until the records are written, a sink has failed, or the timeout expires. Returns true
    // if all records are written. Thread-safe.
    bool wait(Seconds timeout) const;

   private:
    friend class MetricsHub;
    std::vector<std::pair<std::shared_ptr<Worker>, uint64_t>> workers_;
  };
  // Starts writing the queue of the sink of that name, or of all sinks by default.
  PendingFlush flush(std::string_view sink = {});

  // Blocks until all queues are written or the timeout expires. Sinks that hang then count as
  // failed, and their records as dropped.
  void drain(Seconds timeout);

  // Returns messages about sinks that have failed or have begun to drop records since the last
  // call. Cheap.
  std::vector<std::string> problems();
  const std::shared_ptr<DropCounts>& dropped() const { return dropped_; }

 private:
  std::vector<std::shared_ptr<Worker>> workers_;
  std::shared_ptr<DropCounts> dropped_ = std::make_shared<DropCounts>();
};

}  // namespace trireme::train
