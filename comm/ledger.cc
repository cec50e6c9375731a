#include "comm/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>

#include "core/error.h"

namespace trireme::comm {
namespace {

template <class T>
void copy(const std::atomic<T>& from, std::atomic<T>& to) {
  to.store(from.load());
}

template <size_t kBytes>
void copy(const SharedText<kBytes>& from, SharedText<kBytes>& to) {
  to.set(from.get());
}

void copy(const LedgerRecord::GroupCalls& from, LedgerRecord::GroupCalls& to) {
  copy(from.began, to.began);
  copy(from.step, to.step);
  copy(from.bytes, to.bytes);
  copy(from.dtype, to.dtype);
  copy(from.bucket, to.bucket);
  copy(from.bucket_name, to.bucket_name);
  copy(from.operation, to.operation);
  copy(from.name, to.name);
  copy(from.transfers, to.transfers);
  copy(from.sequence, to.sequence);
  copy(from.group, to.group);
}

void copy(const LedgerRecord& from, LedgerRecord& to) {
  copy(from.heartbeat, to.heartbeat);
  copy(from.rank, to.rank);
  copy(from.pid, to.pid);
  copy(from.phase, to.phase);
  copy(from.since, to.since);
  copy(from.step, to.step);
  copy(from.process_steps, to.process_steps);
  copy(from.step_ns, to.step_ns);
  copy(from.waiting_ns, to.waiting_ns);
  copy(from.idle_ns, to.idle_ns);
  copy(from.awaits_transfer, to.awaits_transfer);
  copy(from.detail, to.detail);
  for (size_t i = 0; i < to.groups.size(); ++i) copy(from.groups[i], to.groups[i]);
  copy(from.failure, to.failure);
  copy(from.exit_code, to.exit_code);
  copy(from.caused_by_peer, to.caused_by_peer);
  copy(from.failed, to.failed);
}

bool is_free(const LedgerRecord::GroupCalls& calls) { return calls.group == 0; }

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

bool is_transfer(std::string_view operation) {
  return operation == "MPI_Send" || operation == "MPI_Recv";
}

int64_t monotonic_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Ledger::Ledger() : own_(std::make_unique<LedgerRecord>()), record_(own_.get()) {
  record_->since = monotonic_ns();
}

void Ledger::enter(Phase phase) {
  record_->phase.store(phase, std::memory_order_relaxed);
  record_->since.store(monotonic_ns(), std::memory_order_relaxed);
  record_->detail.set({});
}

void Ledger::enter(Phase phase, int64_t step) {
  record_->step.store(step, std::memory_order_relaxed);
  enter(phase);
}

void Ledger::set_detail(std::string_view text) { record_->detail.set(text); }

void Ledger::step_done(double seconds, double waiting, double idle) {
  record_->step_ns.fetch_add(static_cast<int64_t>(1e9 * seconds), std::memory_order_relaxed);
  record_->waiting_ns.fetch_add(static_cast<int64_t>(1e9 * waiting), std::memory_order_relaxed);
  record_->idle_ns.fetch_add(static_cast<int64_t>(1e9 * idle), std::memory_order_relaxed);
  record_->process_steps.fetch_add(1, std::memory_order_relaxed);
}

void Ledger::set_awaits_transfer(bool awaits) {
  record_->awaits_transfer.store(awaits, std::memory_order_relaxed);
}

bool Ledger::has_room() const { return std::ranges::any_of(record_->groups, is_free); }

void Ledger::set_bucket_names(std::vector<std::string> names) {
  std::lock_guard lock(mutex_);
  bucket_names_ = std::move(names);
}

std::vector<std::string> Ledger::bucket_names() const {
  std::lock_guard lock(mutex_);
  return bucket_names_;
}

std::string Ledger::bucket_name(int32_t bucket) const {
  const std::scoped_lock lock(mutex_);
  return bucket >= 0 && bucket < std::ssize(bucket_names_) ? bucket_names_[bucket] : std::string();
}

void Ledger::set_roles(std::vector<std::string> roles) {
  std::lock_guard lock(mutex_);
  roles_ = std::move(roles);
}

std::vector<std::string> Ledger::roles() const {
  std::lock_guard lock(mutex_);
  return roles_;
}

std::string Ledger::with_role(int rank) const {
  std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(rank);
  if (index >= roles_.size()) return std::to_string(rank);
  return fmt::format("{} ({})", rank, roles_[index]);
}

void Ledger::fail(std::string_view message, int exit_code, bool caused_by_peer) noexcept {
  int64_t none = 0;
  // -1 claims the fields; storing the time publishes them once all are written.
  if (!record_->failed.compare_exchange_strong(none, -1)) return;
  record_->failure.set(message);
  record_->exit_code.store(exit_code);
  record_->caused_by_peer.store(caused_by_peer);
  record_->failed.store(monotonic_ns());
}

void Ledger::configure(const WatchOptions& options) {
  std::lock_guard lock(mutex_);
  options_ = options;
  const std::string log = options.log.string();
  log_ = {};
  if (log.size() < log_.size()) log.copy(log_.data(), log.size());
}

WatchOptions Ledger::options() const {
  std::lock_guard lock(mutex_);
  return options_;
}

void Ledger::set_diagnosis(std::string text) {
  std::lock_guard lock(mutex_);
  diagnosis_ = std::move(text);
}

std::string Ledger::diagnosis() const {
  std::lock_guard lock(mutex_);
  return diagnosis_;
}

void Ledger::set_paces(std::vector<RankPace> paces) {
  std::lock_guard lock(mutex_);
  paces_ = std::move(paces);
}

std::vector<RankPace> Ledger::paces() const {
  std::lock_guard lock(mutex_);
  return paces_;
}

void Ledger::move_to(LedgerRecord* shared) {
  LedgerRecord* next = shared ? shared : own_.get();
  if (next == record_) return;
  copy(*record_, *next);
  record_ = next;
}

LedgerGroup::LedgerGroup(Ledger& ledger, const Group& group) : ledger_(ledger), index_(0) {
  const std::lock_guard lock(ledger_.mutex_);
  auto& all = ledger_.record().groups;
  const auto free = std::ranges::find_if(all, is_free);
  if (free == all.end()) {
    throw CommError(fmt::format("a rank can be in at most {} process groups at a time",
                                LedgerRecord::kMaxGroups));
  }
  index_ = static_cast<size_t>(free - all.begin());
  free->name.set(group.name);
  free->operation.set({});
  free->sequence.store(0);
  free->transfers.store(0);
  free->began.store(0);
  free->group.store(group.id);
}

LedgerGroup::~LedgerGroup() {
  if (std::uncaught_exceptions() == 0) calls().group.store(0);
}

LedgerRecord::GroupCalls& LedgerGroup::calls() { return ledger_.record().groups[index_]; }

uint64_t LedgerGroup::begin(const CallRecord& call) {
  LedgerRecord::GroupCalls& now = calls();
  // -1 marks the entry as being written. A reader that finds the same counters before and after has
  // read consistent fields.
  now.began.store(-1);
  now.operation.set(call.operation);
  now.bytes.store(call.bytes, std::memory_order_relaxed);
  now.dtype.store(call.dtype, std::memory_order_relaxed);
  now.bucket.store(call.tag.bucket, std::memory_order_relaxed);
  if (call.tag.bucket >= 0) now.bucket_name.set(ledger_.bucket_name(call.tag.bucket));
  now.step.store(call.step < 0 ? ledger_.record().step.load(std::memory_order_relaxed) : call.step,
                 std::memory_order_relaxed);
  auto& count = is_transfer(call.operation) ? now.transfers : now.sequence;
  const uint64_t number = count.fetch_add(1) + 1;
  now.began.store(monotonic_ns());
  return number;
}

void LedgerGroup::end() { calls().began.store(0); }

}  // namespace trireme::comm
