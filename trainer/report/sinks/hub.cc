#include "trainer/report/sinks/hub.h"

#include <fmt/format.h>

#include <condition_variable>
#include <exception>
#include <system_error>
#include <thread>

#include "trainer/base/background.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;
using EventPointer = std::shared_ptr<const MetricsEvent>;

// Records are batched for this long, so that not every step wakes the threads.
constexpr auto kBatchInterval = std::chrono::milliseconds(200);
constexpr std::chrono::seconds kCloseTimeout{3};

}  // namespace

std::vector<DropCounts::Count> DropCounts::get() const {
  const std::lock_guard lock(mutex_);
  std::vector<Count> all;
  for (const auto& [sink, records] : counts_) all.push_back({sink, records.load()});
  return all;
}

std::atomic<int64_t>& DropCounts::of(const std::string& sink) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, records] : counts_) {
    if (name == sink) return records;
  }
  return counts_
      .emplace_back(std::piecewise_construct, std::forward_as_tuple(sink), std::forward_as_tuple(0))
      .second;
}

// A sink with its queue and its thread. The thread shares the ownership, so it may outlive the hub
// if the sink hangs.
struct MetricsHub::Worker {
  Worker(std::unique_ptr<Sink> a_sink, size_t a_capacity, std::shared_ptr<DropCounts> counts)
      : name(a_sink->name()),
        capacity(a_capacity),
        drop_counts(std::move(counts)),
        dropped(drop_counts->of(name)),
        sink(std::move(a_sink)) {}

  // --- Called by other threads.

  void push(const EventPointer& event, bool now) {
    if (!threaded) return write_here(event);
    const std::lock_guard lock(mutex);
    if (failed) {
      ++dropped;
      return;
    }
    if (queue.size() >= capacity) return overflow();
    queue.push_back(event);
    ++accepted;
    if (now) urgent = true;
    if (now || queue.size() == capacity / 2) wake.notify_one();
  }

  void overflow() {
    if (dropped++ == 0) add_problem(name + " does not keep up: records are being dropped");
  }

  void write_here(const EventPointer& event) {
    {
      const std::lock_guard lock(mutex);
      ++accepted;
    }
    std::vector<EventPointer> batch = {event};
    handle(batch);
  }

  // Returns the number of records to wait for.
  uint64_t start_flush() {
    const std::lock_guard lock(mutex);
    urgent = true;
    wake.notify_one();
    return accepted;
  }

  bool wait(uint64_t until, Clock::time_point deadline) {
    std::unique_lock lock(mutex);
    written.wait_until(lock, deadline, [&] { return failed || done >= until; });
    return !failed && done >= until;
  }

  // Records that are not written by the deadline are counted as dropped.
  void drain(Clock::time_point deadline) {
    std::unique_lock lock(mutex);
    // A failed sink handles its records too: it counts them as dropped.
    if (written.wait_until(lock, deadline, [&] { return done >= accepted; })) return;
    failed = abandoned = true;
    dropped += static_cast<int64_t>(accepted - done);
    add_problem(fmt::format("{} hangs: {} records were not written", name, accepted - done));
  }

  bool wait_for_end(Clock::time_point deadline) {
    std::unique_lock lock(mutex);
    return written.wait_until(lock, abandoned ? Clock::now() : deadline, [&] { return ended; });
  }

  void stop() {
    const std::lock_guard lock(mutex);
    stopping = true;
    wake.notify_one();
  }

  std::vector<std::string> take_problems() {
    const std::lock_guard lock(mutex);
    has_problems = false;
    return std::exchange(problems, {});
  }

  // --- Called by the sink's thread.

  void run() {
    set_background_thread("metrics");
    attempt([&] { sink->open(); });
    std::vector<EventPointer> batch;
    while (take(batch)) handle(batch);
    sink.reset();  // may hang, like any write
    const std::lock_guard lock(mutex);
    ended = true;
    written.notify_all();
  }

  // Waits for events. Returns false if there will be no more.
  bool take(std::vector<EventPointer>& batch) {
    std::unique_lock lock(mutex);
    wake.wait_for(lock, kBatchInterval,
                  [&] { return urgent || stopping || queue.size() >= capacity / 2; });
    urgent = false;
    batch.clear();
    batch.swap(queue);
    return !batch.empty() || !stopping;
  }

  void handle(std::vector<EventPointer>& batch) {
    if (batch.empty()) return;
    for (EventPointer& event : batch) {
      attempt([&] { sink->write(*event); });
      event.reset();  // it may be large
    }
    attempt([&] { sink->flush(); });
    const std::lock_guard lock(mutex);
    done += batch.size();
    if (broken) dropped += static_cast<int64_t>(batch.size());
    written.notify_all();
  }

  template <class F>
  void attempt(F work) {
    if (broken) return;
    try {
      work();
    } catch (const std::exception& error) {
      broken = true;
      fail(error.what());
    }
  }

  void fail(const std::string& why) {
    const std::lock_guard lock(mutex);
    failed = true;
    add_problem(why + "; training continues without it");
    written.notify_all();
  }

  // Requires the mutex.
  void add_problem(std::string text) {
    problems.push_back(std::move(text));
    has_problems = true;
  }

  const std::string name;
  const size_t capacity;
  const std::shared_ptr<DropCounts> drop_counts;
  std::atomic<int64_t>& dropped;
  std::thread thread;
  bool threaded = true;
  std::unique_ptr<Sink> sink;  // used by the thread only, except for Sink::wants
  bool broken = false;         // copy of `failed` for the thread

  std::mutex mutex;  // guards the members below
  std::condition_variable wake, written;
  std::vector<EventPointer> queue;
  uint64_t accepted = 0;  // events put into the queue so far
  uint64_t done = 0;      // events written so far
  bool urgent = false;
  bool stopping = false;
  bool failed = false;
  bool abandoned = false;  // because it hangs
  bool ended = false;
  std::vector<std::string> problems;
  std::atomic<bool> has_problems = false;
};

MetricsHub::~MetricsHub() {
  const auto deadline = Clock::now() + kCloseTimeout;
  for (const auto& worker : workers_) worker->stop();
  for (const auto& worker : workers_) {
    if (!worker->thread.joinable()) continue;
    // A thread that hangs in a system call cannot be ended.
    worker->wait_for_end(deadline) ? worker->thread.join() : worker->thread.detach();
  }
}

void MetricsHub::add(std::unique_ptr<Sink> sink, size_t capacity) {
  const auto& worker =
      workers_.emplace_back(std::make_shared<Worker>(std::move(sink), capacity, dropped_));
  try {
    worker->thread = std::thread([worker] { worker->run(); });
  } catch (const std::system_error&) {
    // The process has reached its limit of threads: write synchronously instead.
    worker->threaded = false;
    worker->attempt([&] { worker->sink->open(); });
  }
}

std::weak_ptr<const MetricsEvent> MetricsHub::write(MetricsRecord record, When when) {
  const auto event = std::make_shared<const MetricsEvent>(
      MetricsEvent{std::chrono::system_clock::now(), std::move(record)});
  for (const auto& worker : workers_) {
    if (worker->sink->wants(event->record)) worker->push(event, when == When::kNow);
  }
  return event;
}

bool MetricsHub::PendingFlush::wait(Seconds timeout) const {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  bool all = true;
  for (const auto& [worker, until] : workers_) all = worker->wait(until, deadline) && all;
  return all;
}

MetricsHub::PendingFlush MetricsHub::flush(std::string_view sink) {
  PendingFlush pending;
  for (const auto& worker : workers_) {
    if (sink.empty() || worker->name == sink) {
      pending.workers_.emplace_back(worker, worker->start_flush());
    }
  }
  return pending;
}

void MetricsHub::drain(Seconds timeout) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  flush();
  for (const auto& worker : workers_) worker->drain(deadline);
}

std::vector<std::string> MetricsHub::problems() {
  std::vector<std::string> all;
  for (const auto& worker : workers_) {
    if (!worker->has_problems) continue;
    for (std::string& problem : worker->take_problems()) all.push_back(std::move(problem));
  }
  return all;
}

}  // namespace trireme::train
