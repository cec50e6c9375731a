#include "comm/ledger.h"

#include <algorithm>
#include <ctime>
#include <mutex>

namespace trireme {

struct Ledger::Options {
  std::mutex mutex;
  WatchOptions value;
};

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kStart:
      return "start";
    case Phase::kData:
      return "data";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kCommunication:
      return "communication";
    case Phase::kUpdate:
      return "update";
    case Phase::kCheckpoint:
      return "checkpoint";
    case Phase::kEvaluation:
      return "evaluation";
    case Phase::kEnd:
      return "end";
  }
  return "?";
}

int64_t monotonic_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Ledger::Ledger() : own_(std::make_unique<LedgerPage>()), page_(own_.get()), options_(new Options) {
  page_->since = monotonic_ns();
}
Ledger::~Ledger() = default;

void Ledger::enter(Phase phase) {
  page_->phase.store(phase, std::memory_order_relaxed);
  page_->since.store(monotonic_ns(), std::memory_order_relaxed);
  page_->detail.set({});
}

void Ledger::enter(Phase phase, int64_t step) {
  page_->step.store(step, std::memory_order_relaxed);
  enter(phase);
}

void Ledger::detail(std::string_view text) { page_->detail.set(text); }

void Ledger::step_done(double seconds, double waiting) {
  page_->step_ns.fetch_add(static_cast<int64_t>(1e9 * seconds), std::memory_order_relaxed);
  page_->waiting_ns.fetch_add(static_cast<int64_t>(1e9 * waiting), std::memory_order_relaxed);
  page_->steps_here.fetch_add(1, std::memory_order_relaxed);
}

int Ledger::add_lane() { return std::min(lanes_++, LedgerPage::kLanes - 1); }

void Ledger::begin(int lane, const char* operation, int64_t bytes, int bucket) {
  LedgerPage::Lane& now = page_->lanes[static_cast<size_t>(lane)];
  now.operation.set(operation);
  now.bytes.store(bytes, std::memory_order_relaxed);
  now.bucket.store(bucket, std::memory_order_relaxed);
  now.step.store(page_->step.load(std::memory_order_relaxed), std::memory_order_relaxed);
  now.sequence.fetch_add(1);
  now.began.store(monotonic_ns());
}

void Ledger::end(int lane) { page_->lanes[static_cast<size_t>(lane)].began.store(0); }

void Ledger::name_buckets(std::vector<std::string> names) { bucket_names_ = std::move(names); }

void Ledger::fail(std::string_view message, int exit_code, bool from_a_peer) noexcept {
  int64_t none = 0;
  // Claimed first; published, by the time, once all of it is there.
  if (!page_->failed.compare_exchange_strong(none, -1)) return;
  page_->failure.set(message);
  page_->exit_code.store(exit_code);
  page_->from_a_peer.store(from_a_peer);
  page_->failed.store(monotonic_ns());
}

void Ledger::configure(const WatchOptions& options) {
  std::lock_guard lock(options_->mutex);
  options_->value = options;
}

WatchOptions Ledger::options() const {
  std::lock_guard lock(options_->mutex);
  return options_->value;
}

void Ledger::move_to(LedgerPage& page) {
  page.rank = page_->rank.load();
  page.pid = page_->pid.load();
  page.phase = page_->phase.load();
  page.since = page_->since.load();
  page.step = page_->step.load();
  for (size_t i = 0; i < page.lanes.size(); ++i) {
    page.lanes[i].sequence = page_->lanes[i].sequence.load();
  }
  page_ = &page;
}

}  // namespace trireme
