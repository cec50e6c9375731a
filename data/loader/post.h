// What a thread is reading, for others to see without stopping it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "data/loader.h"

namespace trireme::data {

class alignas(64) Post {
 public:
  void begin(int64_t batch, int64_t epoch) {
    batch_.store(batch, std::memory_order_relaxed);
    epoch_.store(epoch, std::memory_order_relaxed);
    touch();
  }
  void sample(int64_t sample) { sample_.store(sample, std::memory_order_relaxed); }
  // Seconds are counted from here.
  void touch() { since_.store(now(), std::memory_order_relaxed); }
  void end() { batch_.store(-1, std::memory_order_relaxed); }

  bool reads() const { return batch_.load(std::memory_order_relaxed) >= 0; }
  // `worker` as in Reading.
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

  std::atomic<int64_t> batch_{-1};  // -1: none
  std::atomic<int64_t> epoch_{0};
  std::atomic<int64_t> sample_{0};
  std::atomic<Clock::rep> since_{0};
};

}  // namespace trireme::data
