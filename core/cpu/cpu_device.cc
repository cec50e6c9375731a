#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "core/alignment.h"
#include "core/device.h"
#include "core/parallel.h"
#include "core/signal_stack.h"

namespace trireme {

namespace internal {

void run_parallel(int64_t count, void (*body)(void*, int64_t, int64_t), void* context) {
  const int64_t threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  if (threads == 1 || count <= 1) {
    if (count > 0) body(context, 0, count);
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    const int64_t parts = omp_get_num_threads();
    const int64_t part = omp_get_thread_num();
    const int64_t begin = count * part / parts;
    const int64_t end = count * (part + 1) / parts;
    if (begin < end) body(context, begin, end);
  }
}

}  // namespace internal

namespace {

using Clock = std::chrono::steady_clock;

// Makes the calling thread read and write subnormal numbers as 0: x86 processors compute slowly
// with them, and decaying averages of gradients end as such numbers. "Intel 64 and IA-32
// Architectures Software Developer's Manual", volume 1, 10.2.3.
void flush_subnormals() {
#ifdef __x86_64__
  constexpr unsigned kDenormalsAreZeros = 1 << 6, kFlushToZero = 1 << 15;
  _mm_setcsr(_mm_getcsr() | kDenormalsAreZeros | kFlushToZero);
#endif
}

// An event that also carries the failure of the work before it.
class CpuEvent final : public Event {
 public:
  void arm() {
    std::lock_guard lock(mutex_);
    ++armed_;
  }
  void reach(std::exception_ptr failure) {
    // Notify under the lock: a waiter may destroy the event as soon as the lock is released.
    std::lock_guard lock(mutex_);
    ++reached_;
    failure_ = std::move(failure);
    time_ = Clock::now();
    changed_.notify_all();
  }
  std::exception_ptr wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ == armed_; });
    return failure_;
  }
  void synchronize() override {
    if (auto failure = wait()) std::rethrow_exception(failure);
  }
  Clock::time_point time() const { return time_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t armed_ = 0;
  int64_t reached_ = 0;
  std::exception_ptr failure_;
  Clock::time_point time_;
};

class InlineStream final : public Stream {
 public:
  DeviceKind device() const override { return DeviceKind::kCpu; }
  void record(Event& event) override {
    auto& cpu_event = static_cast<CpuEvent&>(event);
    cpu_event.arm();
    cpu_event.reach(nullptr);
  }
  void wait(Event& event) override {
    if (auto failure = static_cast<CpuEvent&>(event).wait()) std::rethrow_exception(failure);
  }
  void run(Task task) override { task(); }
  void synchronize() override {}
};

// A thread that runs tasks from a ring buffer. After a task has thrown, later tasks are skipped,
// and later events and synchronize calls report the exception.
class BackgroundStream final : public Stream {
 public:
  BackgroundStream() : thread_([this] { work(); }) {}
  ~BackgroundStream() override {
    run(Task([this] { stopping_ = true; }), /*always=*/true);
    thread_.join();
  }

  DeviceKind device() const override { return DeviceKind::kCpu; }
  void record(Event& event) override {
    auto* cpu_event = static_cast<CpuEvent*>(&event);
    cpu_event->arm();
    run(Task([this, cpu_event] { cpu_event->reach(failure_); }), /*always=*/true);
  }
  void wait(Event& event) override {
    auto* cpu_event = static_cast<CpuEvent*>(&event);
    run(Task([cpu_event] {
      if (auto failure = cpu_event->wait()) std::rethrow_exception(failure);
    }));
  }
  void run(Task task) override { run(task, /*always=*/false); }
  void synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == queued_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Entry {
    Task task;
    bool always = false;  // runs even after a failure
  };
  static constexpr int64_t kRingSize = 1024;

  void run(Task task, bool always) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queued_ - done_ < kRingSize; });
    ring_[queued_ % kRingSize] = {task, always};
    ++queued_;
    lock.unlock();
    changed_.notify_all();
  }

  void work() {
    flush_subnormals();
    while (!stopping_) {
      Entry entry;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return done_ < queued_; });
        entry = ring_[done_ % kRingSize];
      }
      std::exception_ptr failure;
      if (entry.always || !failure_) {
        try {
          entry.task();
        } catch (...) {
          failure = std::current_exception();
        }
      }
      {
        std::lock_guard lock(mutex_);
        if (failure) failure_ = failure;
        ++done_;
      }
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Entry ring_[kRingSize];
  int64_t queued_ = 0;
  int64_t done_ = 0;
  std::exception_ptr failure_;  // written by the thread, under the mutex
  bool stopping_ = false;       // accessed by the thread only
  std::thread thread_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : threads_(threads) {
    omp_set_num_threads(threads);
#pragma omp parallel
    {
      use_signal_stack();
      flush_subnormals();
    }
  }

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string description() const override {
    std::string model = "CPU";
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
      if (line.starts_with("model name")) {
        model = line.substr(line.find(':') + 2);
        break;
      }
    }
    return fmt::format("{}, {} thread{}", model, threads_, threads_ == 1 ? "" : "s");
  }

  Buffer allocate(size_t bytes) override {
    // Huge pages: otherwise large arenas would cause many TLB misses.
    constexpr size_t kPage = 4096, kHugePage = 2 << 20;
    const bool huge = bytes >= 2 * kHugePage;
    const size_t alignment = huge ? kHugePage : kPage;
    const size_t rounded = round_up(std::max<size_t>(bytes, 1), alignment);
    void* data = std::aligned_alloc(alignment, rounded);
    if (!data) {
      throw DeviceError("memory allocation", fmt::format("no memory for {} bytes", bytes));
    }
    if (huge) madvise(data, rounded, MADV_HUGEPAGE);  // only a hint; failure is harmless
    return Buffer(data, bytes, [](void* memory) { std::free(memory); });
  }
  std::unique_ptr<Stream> create_stream(StreamKind kind) override {
    if (kind == StreamKind::kBackground) return std::make_unique<BackgroundStream>();
    return std::make_unique<InlineStream>();
  }
  std::unique_ptr<Event> create_event(EventKind) override { return std::make_unique<CpuEvent>(); }
  double seconds_between(Event& from, Event& to) override {
    const auto time = [](Event& event) { return static_cast<CpuEvent&>(event).time(); };
    return std::chrono::duration<double>(time(to) - time(from)).count();
  }
  Buffer allocate_host(size_t bytes) override { return allocate(bytes); }
  void copy(void* to, const void* from, size_t bytes, Stream& stream) override {
    if (bytes > 0) stream.run(Task([=] { std::memcpy(to, from, bytes); }));
  }
  void fill_zero(void* to, size_t bytes, Stream& stream) override {
    if (bytes > 0) stream.run(Task([=] { std::memset(to, 0, bytes); }));
  }
  std::unique_ptr<Recording> record(Stream&, const std::function<void()>&) override {
    return nullptr;
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<Device> create_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace trireme
