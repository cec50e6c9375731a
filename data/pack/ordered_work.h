// Computes results on several threads and returns them in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace trireme::data {

// A sequence of results that worker threads compute ahead. next() is called by one thread.
template <class Result>
class OrderedWork {
 public:
  // Calls `make(thread, number)` for each number in [begin, end). At most `depth` results are
  // computed ahead of next().
  OrderedWork(int threads, int depth, int64_t begin, int64_t end,
              std::function<Result(int, int64_t)> make)
      : make_(std::move(make)), slots_(depth), taken_(begin), handed_out_(begin), end_(end) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { run(i); });
  }
  // Cancels the results whose computation has not started, and waits for the others.
  ~OrderedWork() {
    {
      const std::lock_guard lock(mutex_);
      end_ = taken_;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  // Returns the next result; rethrows the exception if `make` threw one. Must not be called more
  // often than there are numbers.
  Result next() {
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(handed_out_);
    changed_.wait(lock, [&] { return slot.result || slot.error; });
    ++handed_out_;
    changed_.notify_all();
    if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
    Result result = std::move(*slot.result);
    slot.result.reset();
    return result;
  }

 private:
  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
  };
  Slot& slot_of(int64_t number) { return slots_[number % slots_.size()]; }

  void run(int thread) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] {
        return taken_ == end_ || taken_ < handed_out_ + static_cast<int64_t>(slots_.size());
      });
      if (taken_ == end_) return;
      const int64_t number = taken_++;
      lock.unlock();
      Slot slot = make(thread, number);
      lock.lock();
      slot_of(number) = std::move(slot);
      changed_.notify_all();
    }
  }
  Slot make(int thread, int64_t number) {
    try {
      return {make_(thread, number), nullptr};
    } catch (...) {
      return {std::nullopt, std::current_exception()};
    }
  }

  const std::function<Result(int, int64_t)> make_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  int64_t taken_;       // the next number to compute
  int64_t handed_out_;  // the next number to return
  int64_t end_;
  std::vector<std::thread> threads_;
};

}  // namespace trireme::data
