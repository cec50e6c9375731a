// The ledger: a rank's record of what it is currently doing. The watchdogs of all ranks compare the
// records to find the rank at fault when one is late. Recording an event takes a few atomic stores,
// which is cheap enough for every step and every collective.
#pragma once

#include <limits.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group.h"
#include "core/collective.h"
#include "core/dtype.h"

namespace trireme::comm {

enum class Phase : uint8_t {
  kStart,  // before the first step
  kData,
  kForward,
  kBackward,
  kCommunication,  // waiting for the remaining sums after the backward pass
  kUpdate,
  kCheckpoint,
  kEvaluation,
  kEnd,  // the rank has left the run cleanly, or is about to
};
const char* name_of(Phase phase);

// Limits of the watchdog. Times are in seconds; 0 disables a limit.
struct WatchOptions {
  double timeout = 300;         // maximum time without progress while others wait for the rank
  double first_timeout = 1800;  // the same, before the first step has completed
  double checkpoint = 600;      // added to these while the rank saves a checkpoint
  double straggler = 0.5;       // warn if a rank delays the others by this fraction of a step
  std::filesystem::path log;    // file to which the diagnosis is appended; empty if there is none
};

// Text that other processes can read while it is being replaced. A reader gets the old text, the
// new one, or an empty string.
template <size_t kBytes>
class SharedText {
 public:
  void set(std::string_view text) {
    version_.fetch_add(1);  // odd: being written
    std::atomic_thread_fence(std::memory_order_release);
    const size_t length = std::min(text.size(), kBytes);
    for (size_t i = 0; i < length; ++i) bytes_[i].store(text[i], std::memory_order_relaxed);
    length_.store(static_cast<uint32_t>(length), std::memory_order_relaxed);
    version_.fetch_add(1);
  }
  std::string get() const {
    std::string text;
    for (int tries = 0; tries < 3 && text.empty(); ++tries) text = try_to_get();
    return text;
  }

 private:
  std::string try_to_get() const {
    const uint32_t before = version_.load();
    const size_t length = std::min<size_t>(length_.load(std::memory_order_relaxed), kBytes);
    std::string text(length, '\0');
    for (size_t i = 0; i < length; ++i) text[i] = bytes_[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    return before % 2 == 0 && version_.load() == before ? text : std::string();
  }

  std::atomic<uint32_t> version_{0};
  std::atomic<uint32_t> length_{0};
  std::array<std::atomic<char>, kBytes> bytes_{};
};

// The state of one rank, in memory shared by the ranks of its host. All zero is the initial state.
// Times are in nanoseconds of CLOCK_MONOTONIC, which is the same for all processes of a host.
struct LedgerRecord {
  // The calls on one process group of this rank. Collectives are numbered in the order in which all
  // members call them. Transfers involve only one other member, so they are counted separately.
  struct GroupCalls {
    std::atomic<uint64_t> group{0};      // Group::id; 0 if this entry is free
    std::atomic<uint64_t> sequence{0};   // number of the latest collective, counted from 1
    std::atomic<uint64_t> transfers{0};  // number of transfers begun so far
    std::atomic<int64_t> began{0};       // start of the call in flight; 0 if none, -1 while written
    std::atomic<int64_t> step{0};        // training step of the call
    std::atomic<int64_t> bytes{0};
    std::atomic<DType> dtype{DType::kU8};
    std::atomic<int32_t> bucket{-1};  // gradient bucket; -1 if the call sums something else
    SharedText<128> bucket_name;      // "layer3.0.conv1 ... layer3.2.bn3"
    SharedText<32> operation;         // "MPI_Allgather"
    SharedText<64> name;              // Group::name
  };
  static constexpr int kMaxGroups = 16;  // groups that a rank can be a member of at a time

  std::atomic<int64_t> heartbeat{0};  // when this rank's watchdog last ran
  std::atomic<int32_t> rank{0};
  std::atomic<int32_t> pid{0};
  std::atomic<Phase> phase{Phase::kStart};
  std::atomic<int64_t> since{0};          // when the phase began
  std::atomic<int64_t> step{0};           // completed updates
  std::atomic<int64_t> process_steps{0};  // steps completed by this process
  std::atomic<int64_t> step_ns{0};        // total duration of these steps
  std::atomic<int64_t> waiting_ns{0};     // the part of it spent waiting for other ranks
  std::atomic<int64_t> idle_ns{0};        // the part of it spent waiting for other pipeline stages
  // Nothing is computed until a transfer is done that runs in the background.
  std::atomic<bool> awaits_transfer{false};
  SharedText<192> detail;  // describes the phase further
  std::array<GroupCalls, kMaxGroups> groups;
  // The failure that ends this rank.
  std::atomic<int64_t> failed{0};  // time of the failure; 0 if there is none
  std::atomic<int32_t> exit_code{0};
  std::atomic<bool> caused_by_peer{false};  // may be the consequence of another rank's failure
  SharedText<768> failure;
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

// A call on a communicator, as the ledger records it.
struct CallRecord {
  const char* operation = "";
  int64_t bytes = 0;
  CallTag tag = {};
  int64_t step = -1;  // the training step; -1 for the current one
  DType dtype = DType::kU8;
};

// Returns true for sends and receives, which involve two ranks of the group rather than all.
bool is_transfer(std::string_view operation);

// The speed of a rank so far.
struct RankPace {
  int64_t steps = 0;
  int64_t step_ns = 0;     // total duration of the steps
  int64_t waiting_ns = 0;  // the part of it spent waiting for other ranks
  int64_t idle_ns = 0;     // the part of it spent waiting for other pipeline stages
};

// Writes the record of this rank, and stores what its watchdog exchanges with the trainer.
class Ledger {
 public:
  // The record is private to this process until move_to() is called.
  Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Records that this rank has entered `phase`, and clears the detail.
  void enter(Phase phase);
  void enter(Phase phase, int64_t step);
  // Describes the phase further, for messages: "sample 4711 of epoch 2, which worker 1 has been
  // reading for 3.2 s".
  void set_detail(std::string_view text);
  // Records that a step is done. `seconds` is its duration, including the `waiting` seconds in
  // which this rank waited for others, `idle` of them for other pipeline stages.
  void step_done(double seconds, double waiting, double idle = 0);
  // Records whether this rank computes nothing until a background transfer is done.
  void set_awaits_transfer(bool awaits);

  // Returns true if this rank can become a member of one more group.
  bool has_room() const;
  // Sets the names of the gradient buckets for messages: "layer3.0.conv1 ... layer3.2.bn3". Call
  // it before the first step.
  void set_bucket_names(std::vector<std::string> names);
  std::vector<std::string> bucket_names() const;
  // Returns an empty string if the bucket has no name.
  std::string bucket_name(int32_t bucket) const;
  // Sets what distinguishes the ranks, by rank, for messages: "stage 1, replica 0". Empty if
  // nothing does.
  void set_roles(std::vector<std::string> roles);
  std::vector<std::string> roles() const;
  // Returns the rank's number with its role, if it has one: "3 (stage 1, replica 1)".
  std::string with_role(int rank) const;

  // Records the failure that is about to end this rank; later failures are ignored.
  // `caused_by_peer` says that it may be the consequence of another rank's failure. Safe to call in
  // a signal handler.
  void fail(std::string_view message, int exit_code, bool caused_by_peer) noexcept;

  void configure(const WatchOptions& options);
  WatchOptions options() const;
  // Returns WatchOptions::log; empty if it is too long. Safe to call in a signal handler.
  const char* log() const { return log_.data(); }

  // The reason why all ranks are about to end the run; empty until they have agreed on one.
  void set_diagnosis(std::string text);
  std::string diagnosis() const;

  // The pace of each rank, by rank, as last seen by the watchdog of rank 0. Empty on other ranks
  // and without a watchdog.
  void set_paces(std::vector<RankPace> paces);
  std::vector<RankPace> paces() const;

  const LedgerRecord& record() const { return *record_; }
  LedgerRecord& record() { return *record_; }
  // Moves the record to `shared`, which other processes can read, or back to private memory if
  // `shared` is null. Nothing else may use the ledger during the call.
  void move_to(LedgerRecord* shared);

 private:
  friend class LedgerGroup;

  std::unique_ptr<LedgerRecord> own_;
  LedgerRecord* record_;
  mutable std::mutex mutex_;  // guards the members below and the allocation of record_->groups
  std::vector<std::string> bucket_names_;
  std::vector<std::string> roles_;
  std::string diagnosis_;
  std::vector<RankPace> paces_;
  WatchOptions options_;
  std::array<char, PATH_MAX> log_{};  // options_.log, without a guard
};

// The entry of one process group in a rank's ledger, in which the calls on the group's communicator
// are recorded.
class LedgerGroup {
 public:
  // Allocates the entry. Each member must construct it before the last collective call that creates
  // the group's communicator, so that all members are visible to every rank that waits in the
  // group. `ledger` must outlive it. Throws CommError if the rank is already in
  // LedgerRecord::kMaxGroups groups.
  LedgerGroup(Ledger& ledger, const Group& group);
  // Frees the entry, unless an exception unwinds: other ranks may still be waiting for this one.
  ~LedgerGroup();
  LedgerGroup(const LedgerGroup&) = delete;
  LedgerGroup& operator=(const LedgerGroup&) = delete;

  // Record the start and the end of a call, on the thread that runs it. begin() returns the number
  // of the collective, or of the transfer, counted from 1.
  uint64_t begin(const CallRecord& call);
  void end();

 private:
  LedgerRecord::GroupCalls& calls();

  Ledger& ledger_;
  size_t index_;
};

// Returns the time of CLOCK_MONOTONIC in nanoseconds.
int64_t monotonic_ns();

}  // namespace trireme::comm
