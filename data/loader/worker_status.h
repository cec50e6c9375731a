// The sample that a thread is reading, for other threads to look at.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "data/loader.h"

namespace trireme::data {

// Written by one thread; any thread may call is_reading() and reading(), without locks. Fields that
// are read while the writer updates them may belong to different samples.
class alignas(64) WorkerStatus {
 public:
  void begin(int64_t batch, int64_t epoch) {
    batch_.store(batch, std::memory_order_relaxed);
    epoch_.store(epoch, std::memory_order_relaxed);
    restart_timer();
  }
  void set_sample(int64_t sample) { sample_.store(sample, std::memory_order_relaxed); }
  // Reading::seconds counts from here.
  void restart_timer() { since_.store(now(), std::memory_order_relaxed); }
  void end() { batch_.store(-1, std::memory_order_relaxed); }

  bool is_reading() const { return batch_.load(std::memory_order_relaxed) >= 0; }
  // Returns what is being read. See Reading for `worker`.
  Reading reading(int worker, const Dataset& dataset) const {
    Reading reading;
    reading.worker = worker;
    reading.batch = batch_.load(std::memory_order_relaxed);
    reading.epoch = epoch_.load(std::memory_order_relaxed);
    reading.sample = sample_.load(std::memory_order_relaxed);
    const Clock::duration since(now() - since_.load(std::memory_order_relaxed));
    reading.seconds = std::chrono::duration<double>(since).count();
    reading.where = dataset.where(reading.sample);
    return reading;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::rep now() { return Clock::now().time_since_epoch().count(); }

  std::atomic<int64_t> batch_{-1};  // -1 if the thread is not reading
  std::atomic<int64_t> epoch_{0};
  std::atomic<int64_t> sample_{0};
  std::atomic<Clock::rep> since_{0};
};

}  // namespace trireme::data
