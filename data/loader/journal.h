// A record of what the workers of a loader have read, for profiling.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "data/loader.h"

namespace trireme::data {

// Collects the reads of all workers while it is enabled. Thread-safe.
class Journal {
 public:
  void set_enabled(bool on) { enabled_.store(on, std::memory_order_relaxed); }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  void add(const ReadRows& entry) {
    std::lock_guard lock(mutex_);
    entries_.push_back(entry);
  }
  // Returns and removes all entries.
  std::vector<ReadRows> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(entries_, {});
  }

 private:
  std::atomic<bool> enabled_ = false;
  std::mutex mutex_;
  std::vector<ReadRows> entries_;
};

}  // namespace trireme::data
