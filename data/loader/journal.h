// What the workers of a loader have read, noted while somebody wants to know.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "data/loader.h"

namespace trireme::data {

// For any thread.
class Journal {
 public:
  void keep(bool on) { on_.store(on, std::memory_order_relaxed); }
  bool kept() const { return on_.load(std::memory_order_relaxed); }
  void add(const ReadRows& entry) {
    std::lock_guard lock(mutex_);
    entries_.push_back(entry);
  }
  std::vector<ReadRows> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(entries_, {});
  }

 private:
  std::atomic<bool> on_ = false;
  std::mutex mutex_;
  std::vector<ReadRows> entries_;
};

}  // namespace trireme::data
