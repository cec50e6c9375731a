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

// Records are gathered for so long, which spares threads that would be woken by every step.
constexpr auto kGather = std::chrono::milliseconds(200);
constexpr std::chrono::seconds kFarewell{3};

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

// A sink, its queue and what its thread works on. The thread owns it too, and so may hang.
struct MetricsHub::Lane {
  Lane(std::unique_ptr<Sink> its_sink, size_t its_capacity, std::shared_ptr<DropCounts> counts)
      : name(its_sink->name()),
        capacity(its_capacity),
        drop_counts(std::move(counts)),
        dropped(drop_counts->of(name)),
        sink(std::move(its_sink)) {}

  // --- Of those who feed it.

  void push(const EventPointer& event, bool now) {
    if (!threaded) return write_here(event);
    const std::lock_guard lock(mutex);
    if (failed) {
      ++dropped;
      return;
    }
    if (queue.size() >= capacity) return overflow();
    queue.push_back(event);
    ++given;
    if (now) urgent = true;
    if (now || queue.size() == capacity / 2) wake.notify_one();
  }

  void overflow() {
    if (dropped++ == 0) tell(name + " does not keep up: records are left out");
  }

  void write_here(const EventPointer& event) {
    {
      const std::lock_guard lock(mutex);
      ++given;
    }
    std::vector<EventPointer> batch = {event};
    handle(batch);
  }

  uint64_t hurry() {
    const std::lock_guard lock(mutex);
    urgent = true;
    wake.notify_one();
    return given;
  }

  bool wait(uint64_t until, Clock::time_point deadline) {
    std::unique_lock lock(mutex);
    written.wait_until(lock, deadline, [&] { return failed || done >= until; });
    return !failed && done >= until;
  }

  // What it has not written by now is lost.
  void settle(Clock::time_point deadline) {
    std::unique_lock lock(mutex);
    // Also where it has failed: what it leaves out is counted by then.
    if (written.wait_until(lock, deadline, [&] { return done >= given; })) return;
    failed = given_up = true;
    dropped += static_cast<int64_t>(given - done);
    tell(fmt::format("{} hangs: {} records are not written", name, given - done));
  }

  bool wait_for_end(Clock::time_point deadline) {
    std::unique_lock lock(mutex);
    return written.wait_until(lock, given_up ? Clock::now() : deadline, [&] { return ended; });
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

  // --- Of the thread.

  void run() {
    go_to_background("metrics");
    attempt([&] { sink->open(); });
    std::vector<EventPointer> batch;
    while (take(batch)) handle(batch);
    sink.reset();  // which may hang as well as any write
    const std::lock_guard lock(mutex);
    ended = true;
    written.notify_all();
  }

  // Waits for events; false: there will be none.
  bool take(std::vector<EventPointer>& batch) {
    std::unique_lock lock(mutex);
    wake.wait_for(lock, kGather,
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
    tell(why + "; training goes on without it");
    written.notify_all();
  }

  // With the mutex held.
  void tell(std::string text) {
    problems.push_back(std::move(text));
    has_problems = true;
  }

  const std::string name;
  const size_t capacity;
  const std::shared_ptr<DropCounts> drop_counts;
  std::atomic<int64_t>& dropped;
  std::thread thread;
  bool threaded = true;
  std::unique_ptr<Sink> sink;  // the thread's, but for Sink::wants
  bool broken = false;         // the thread's own `failed`

  std::mutex mutex;  // over the rest
  std::condition_variable wake, written;
  std::vector<EventPointer> queue;
  uint64_t given = 0;  // events that came into the queue
  uint64_t done = 0;   // and have been written
  bool urgent = false;
  bool stopping = false;
  bool failed = false;
  bool given_up = false;  // it hangs
  bool ended = false;
  std::vector<std::string> problems;
  std::atomic<bool> has_problems = false;
};

MetricsHub::~MetricsHub() {
  const auto deadline = Clock::now() + kFarewell;
  for (const auto& lane : lanes_) lane->stop();
  for (const auto& lane : lanes_) {
    if (!lane->thread.joinable()) continue;
    // What it hangs in, nothing in this process can end.
    lane->wait_for_end(deadline) ? lane->thread.join() : lane->thread.detach();
  }
}

void MetricsHub::add(std::unique_ptr<Sink> sink, size_t capacity) {
  const auto& lane =
      lanes_.emplace_back(std::make_shared<Lane>(std::move(sink), capacity, dropped_));
  try {
    lane->thread = std::thread([lane] { lane->run(); });
  } catch (const std::system_error&) {
    // This process has as many threads as it may. Better slow than silent.
    lane->threaded = false;
    lane->attempt([&] { lane->sink->open(); });
  }
}

std::weak_ptr<const MetricsEvent> MetricsHub::write(MetricsRecord record, When when) {
  const auto event = std::make_shared<const MetricsEvent>(
      MetricsEvent{std::chrono::system_clock::now(), std::move(record)});
  for (const auto& lane : lanes_) {
    if (lane->sink->wants(event->record)) lane->push(event, when == When::kNow);
  }
  return event;
}

bool MetricsHub::Mark::wait(Seconds patience) const {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  bool all = true;
  for (const auto& [lane, given] : lanes_) all = lane->wait(given, deadline) && all;
  return all;
}

MetricsHub::Mark MetricsHub::mark(std::string_view sink) {
  Mark mark;
  for (const auto& lane : lanes_) {
    if (sink.empty() || lane->name == sink) mark.lanes_.emplace_back(lane, lane->hurry());
  }
  return mark;
}

void MetricsHub::settle(Seconds patience) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  mark();
  for (const auto& lane : lanes_) lane->settle(deadline);
}

std::vector<std::string> MetricsHub::problems() {
  std::vector<std::string> all;
  for (const auto& lane : lanes_) {
    if (!lane->has_problems) continue;
    for (std::string& problem : lane->take_problems()) all.push_back(std::move(problem));
  }
  return all;
}

}  // namespace trireme::train
