// The hub never waits for a sink, and reports the records that it drops.
#include "trainer/report/sinks/hub.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "core/error.h"

namespace trireme::train {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The records that a sink received. Outlives the hub, which may leave a hanging sink behind.
struct Seen {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lines;
  int flushed = 0;
  bool blocked = false;  // while true, writes do not return

  void unblock() {
    const std::lock_guard lock(mutex);
    blocked = false;
    changed.notify_all();
  }
};

class TestSink : public Sink {
 public:
  TestSink(std::string name, std::shared_ptr<Seen> seen)
      : name_(std::move(name)), seen_(std::move(seen)) {}

  std::string name() const override { return name_; }
  bool wants(const MetricsRecord& record) const override { return is_one_of<LogLine>(record); }
  void open() override {
    if (name_ == "closed") throw Error("closed: cannot be opened");
  }
  void write(const MetricsEvent& event) override {
    std::unique_lock lock(seen_->mutex);
    seen_->changed.wait(lock, [&] { return !seen_->blocked; });
    const std::string& text = std::get<LogLine>(event.record).text;
    if (text == "fail") throw Error("full: cannot be written");
    seen_->lines.push_back(text);
  }
  void flush() override {
    const std::lock_guard lock(seen_->mutex);
    ++seen_->flushed;
  }

 private:
  std::string name_;
  std::shared_ptr<Seen> seen_;
};

int64_t dropped_by(const MetricsHub& hub, const std::string& sink) {
  for (const DropCounts::Count& count : hub.dropped()->get()) {
    if (count.sink == sink) return count.records;
  }
  return -1;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(Hub, PassesRecordsInOrderToTheSinksThatWantThem) {
  const auto a = std::make_shared<Seen>();
  const auto b = std::make_shared<Seen>();
  {
    MetricsHub hub;
    hub.add(std::make_unique<TestSink>("a", a));
    hub.add(std::make_unique<TestSink>("b", b));
    for (int i = 0; i < 1000; ++i) {
      hub.write(LogLine{std::to_string(i)});
      hub.write(StepRecord{});
    }
    EXPECT_TRUE(hub.flush().wait(20s));
    EXPECT_GT(a->flushed, 0);
    EXPECT_TRUE(hub.problems().empty());
    hub.write(LogLine{"last"});
  }
  for (const auto& seen : {a, b}) {
    ASSERT_EQ(seen->lines.size(), 1001u);
    for (int i = 0; i < 1000; ++i)
      EXPECT_EQ(seen->lines[static_cast<size_t>(i)], std::to_string(i));
    EXPECT_EQ(seen->lines.back(), "last") << "the destructor writes the queue";
  }
}

TEST(Hub, HangingSinkBlocksNeitherCallersNorOtherSinks) {
  const auto stuck = std::make_shared<Seen>();
  const auto other = std::make_shared<Seen>();
  stuck->blocked = true;
  const auto start = Clock::now();
  std::shared_ptr<DropCounts> counts;
  {
    MetricsHub hub;
    counts = hub.dropped();
    hub.add(std::make_unique<TestSink>("stuck", stuck), /*capacity=*/4);
    hub.add(std::make_unique<TestSink>("other", other));
    // One record is being written; four more fit into the queue.
    hub.write(LogLine{"0"}, MetricsHub::When::kNow);
    EXPECT_FALSE(hub.flush("stuck").wait(100ms));
    for (int i = 1; i <= 10; ++i) hub.write(LogLine{std::to_string(i)});
    EXPECT_TRUE(hub.flush("other").wait(20s));
    EXPECT_EQ(other->lines.size(), 11u);
    EXPECT_EQ(dropped_by(hub, "stuck"), 6);
    EXPECT_EQ(dropped_by(hub, "other"), 0);
    const auto problems = hub.problems();
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_NE(problems[0].find("stuck does not keep up"), std::string::npos) << problems[0];
    hub.drain(100ms);
    ASSERT_EQ(hub.problems().size(), 1u);
    EXPECT_EQ(dropped_by(hub, "stuck"), 11) << "records of a hanging sink count as dropped";
    EXPECT_TRUE(hub.problems().empty()) << "reported once";
  }
  EXPECT_LT(seconds_since(start), 15) << "the destructor waits for seconds, not forever";
  stuck->unblock();
}

TEST(Hub, FailingSinkIsReportedOnceAndDisabled) {
  const auto seen = std::make_shared<Seen>();
  MetricsHub hub;
  hub.add(std::make_unique<TestSink>("full", seen));
  hub.add(std::make_unique<TestSink>("closed", std::make_shared<Seen>()));
  hub.write(LogLine{"good"});
  EXPECT_TRUE(hub.flush("full").wait(20s));
  hub.write(LogLine{"fail"});
  EXPECT_FALSE(hub.flush("full").wait(20s)) << "does not wait for a failed sink";
  hub.write(LogLine{"more"});
  hub.drain(20s);
  auto problems = hub.problems();
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0], "full: cannot be written; training continues without it");
  EXPECT_EQ(problems[1], "closed: cannot be opened; training continues without it");
  EXPECT_EQ(seen->lines, std::vector<std::string>{"good"});
  EXPECT_EQ(dropped_by(hub, "full"), 2);
  EXPECT_EQ(dropped_by(hub, "closed"), 3);
  EXPECT_TRUE(hub.problems().empty());
}

TEST(Hub, PendingFlushOutlivesTheHub) {
  MetricsHub::PendingFlush pending;
  {
    MetricsHub hub;
    hub.add(std::make_unique<TestSink>("a", std::make_shared<Seen>()));
    hub.write(LogLine{"last"});
    pending = hub.flush();
  }
  EXPECT_TRUE(pending.wait(0s));
}

}  // namespace
}  // namespace trireme::train
