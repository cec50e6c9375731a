// Feeds all sinks of a run. Each has a thread behind a bounded queue, so that a full disk, a hung
// file system or whoever is slow to read can neither stop nor slow training: what finds the queue
// full, or comes after the sink has failed, is dropped and counted.
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

// Records that each sink has dropped. For any thread.
class DropCounts {
 public:
  struct Count {
    std::string sink;
    int64_t records = 0;
  };
  std::vector<Count> get() const;
  // Stays where it is.
  std::atomic<int64_t>& of(const std::string& sink);

 private:
  mutable std::mutex mutex_;
  std::deque<std::pair<std::string, std::atomic<int64_t>>> counts_;
};

class MetricsHub {
 public:
  using Seconds = std::chrono::duration<double>;
  static constexpr size_t kCapacity = 8192;  // records in a queue

  MetricsHub() = default;
  // Gives the sinks, all of them together, a few seconds to write what they have; one that hangs is
  // left behind with its thread and its memory.
  ~MetricsHub();
  MetricsHub(const MetricsHub&) = delete;
  MetricsHub& operator=(const MetricsHub&) = delete;

  void add(std::unique_ptr<Sink> sink, size_t capacity = kCapacity);

  enum class When {
    kSoon,  // within a fraction of a second, together with others
    kNow,   // whoever watches should see it at once
  };
  // Never waits for a sink. What is returned expires when all of them are done with the record.
  std::weak_ptr<const MetricsEvent> write(MetricsRecord record, When when = When::kSoon);

 private:
  struct Lane;

 public:
  // What a sink was given up to a moment.
  class Mark {
   public:
    // Blocks until it is written, or the sink has failed, at most so long. Whether it is written.
    // From any thread, also when the hub has gone.
    bool wait(Seconds patience) const;

   private:
    friend class MetricsHub;
    std::vector<std::pair<std::shared_ptr<Lane>, uint64_t>> lanes_;
  };
  // Has it written now. Of the sink of that name, or of all.
  Mark mark(std::string_view sink = {});

  // Waits, at most so long, until all is written; what hangs then has failed.
  void settle(Seconds patience);

  // Why sinks have failed, and that they have begun to drop records, each told once. Costs next to
  // nothing.
  std::vector<std::string> problems();
  const std::shared_ptr<DropCounts>& dropped() const { return dropped_; }

 private:
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::shared_ptr<DropCounts> dropped_ = std::make_shared<DropCounts>();
};

}  // namespace trireme::train
