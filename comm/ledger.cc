#include "comm/ledger.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace trireme {
namespace {

template <class T>
void copy(const std::atomic<T>& from, std::atomic<T>& to) {
  to.store(from.load());
}

template <size_t kBytes>
void copy(const SharedText<kBytes>& from, SharedText<kBytes>& to) {
  to.set(from.get());
}

void copy(const LedgerPage::Lane& from, LedgerPage::Lane& to) {
  copy(from.began, to.began);
  copy(from.step, to.step);
  copy(from.bytes, to.bytes);
  copy(from.bucket, to.bucket);
  copy(from.operation, to.operation);
  copy(from.sequence, to.sequence);
}

void copy(const LedgerPage& from, LedgerPage& to) {
  copy(from.beat, to.beat);
  copy(from.rank, to.rank);
  copy(from.pid, to.pid);
  copy(from.phase, to.phase);
  copy(from.since, to.since);
  copy(from.step, to.step);
  copy(from.steps_here, to.steps_here);
  copy(from.step_ns, to.step_ns);
  copy(from.waiting_ns, to.waiting_ns);
  copy(from.detail, to.detail);
  for (size_t i = 0; i < to.lanes.size(); ++i) copy(from.lanes[i], to.lanes[i]);
  copy(from.failure, to.failure);
  copy(from.exit_code, to.exit_code);
  copy(from.from_a_peer, to.from_a_peer);
  copy(from.failed, to.failed);
}

}  // namespace

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

Ledger::Ledger() : own_(std::make_unique<LedgerPage>()), page_(own_.get()) {
  page_->since = monotonic_ns();
}

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

uint64_t Ledger::begin(int lane, const char* operation, int64_t bytes, int bucket, int64_t step) {
  LedgerPage::Lane& now = page_->lanes[static_cast<size_t>(lane)];
  // While the rest changes; whoever finds the same before and after has read what belongs together.
  now.began.store(-1);
  now.operation.set(operation);
  now.bytes.store(bytes, std::memory_order_relaxed);
  now.bucket.store(bucket, std::memory_order_relaxed);
  now.step.store(step < 0 ? page_->step.load(std::memory_order_relaxed) : step,
                 std::memory_order_relaxed);
  const uint64_t sequence = now.sequence.fetch_add(1) + 1;
  now.began.store(monotonic_ns());
  return sequence;
}

void Ledger::end(int lane) { page_->lanes[static_cast<size_t>(lane)].began.store(0); }

void Ledger::name_buckets(std::vector<std::string> names) {
  std::lock_guard lock(mutex_);
  bucket_names_ = std::move(names);
}

std::vector<std::string> Ledger::bucket_names() const {
  std::lock_guard lock(mutex_);
  return bucket_names_;
}

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
  std::lock_guard lock(mutex_);
  options_ = options;
}

WatchOptions Ledger::options() const {
  std::lock_guard lock(mutex_);
  return options_;
}

void Ledger::set_verdict(std::string text) {
  std::lock_guard lock(mutex_);
  verdict_ = std::move(text);
}

std::string Ledger::verdict() const {
  std::lock_guard lock(mutex_);
  return verdict_;
}

void Ledger::set_paces(std::vector<RankPace> paces) {
  std::lock_guard lock(mutex_);
  paces_ = std::move(paces);
}

std::vector<RankPace> Ledger::paces() const {
  std::lock_guard lock(mutex_);
  return paces_;
}

void Ledger::move_to(LedgerPage* page) {
  LedgerPage* next = page ? page : own_.get();
  if (next == page_) return;
  copy(*page_, *next);
  page_ = next;
}

}  // namespace trireme
