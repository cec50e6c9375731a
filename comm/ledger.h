// What a rank is doing, written down as it does it, for the watchdogs of all ranks to compare when
// one is late. Writing costs a few stores and no lock, so that every step and every collective can
// afford it.
#pragma once

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
  kStart,  // until the first step
  kData,
  kForward,
  kBackward,
  kCommunication,  // the rest of the sums, after backward has ended
  kUpdate,
  kCheckpoint,
  kEvaluation,
  kEnd,  // the rank has said goodbye, or is about to
};
const char* name_of(Phase phase);

// How long is too long, and where the diagnosis goes. Seconds; 0: never.
struct WatchOptions {
  double timeout = 300;         // without progress while others wait
  double first_timeout = 1800;  // the same until the first step is done
  double checkpoint = 600;      // on top of these while a rank saves, which has a limit of its own
  double straggler = 0.5;       // part of a step that one rank makes the others wait for it
  std::filesystem::path log;    // this rank's log, to which the diagnosis is appended; empty: none
};

// Text that other processes can read while it is being replaced: they see the old, the new, or
// nothing.
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

// One rank's page of the ledger. It lies in memory that the ranks of a host share; all zero is its
// initial state. Times are CLOCK_MONOTONIC, in nanoseconds, which all processes of a host agree on.
struct LedgerPage {
  // The calls of one process group that this rank is a member of: collectives, in the order that
  // all members have in common, and transfers to or from one other member, which the rest do not
  // see.
  struct GroupCalls {
    std::atomic<uint64_t> group{0};      // Group::id; 0: free
    std::atomic<uint64_t> sequence{0};   // of the latest collective, counted from 1
    std::atomic<uint64_t> transfers{0};  // begun so far
    std::atomic<int64_t> began{0};       // when the call in flight did; 0: none is; -1: see begin
    std::atomic<int64_t> step{0};        // during which it was begun
    std::atomic<int64_t> bytes{0};
    std::atomic<DType> dtype{DType::kU8};
    std::atomic<int32_t> bucket{-1};  // of gradients; -1: something else
    SharedText<32> operation;         // "MPI_Allgather"
    SharedText<64> name;              // Group::name
  };
  static constexpr int kMaxGroups = 16;  // that a rank is a member of at a time

  std::atomic<int64_t> heartbeat{0};  // the watchdog's own latest sign of life
  std::atomic<int32_t> rank{0};
  std::atomic<int32_t> pid{0};
  std::atomic<Phase> phase{Phase::kStart};
  std::atomic<int64_t> since{0};       // when the phase began
  std::atomic<int64_t> step{0};        // updates done
  std::atomic<int64_t> steps_here{0};  // of this process
  std::atomic<int64_t> step_ns{0};     // they took
  std::atomic<int64_t> waiting_ns{0};  // of which this rank waited for others
  SharedText<192> detail;              // of the phase
  std::array<GroupCalls, kMaxGroups> groups;
  // Why this rank ends, once it knows.
  std::atomic<int64_t> failed{0};  // when; 0: it has not
  std::atomic<int32_t> exit_code{0};
  std::atomic<bool> from_a_peer{false};  // what another rank's end looks like from here
  SharedText<768> failure;
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

// A call on a communicator, as the ledger records it.
struct CallRecord {
  const char* operation = "";
  int64_t bytes = 0;
  CallTag tag = {};
  int64_t step = -1;  // during which it was called; -1: the present one
  DType dtype = DType::kU8;
};

// Whether it concerns two ranks of the group, and not all of them.
bool is_transfer(std::string_view operation);

// How a rank has fared so far.
struct RankPace {
  int64_t steps = 0;
  int64_t step_ns = 0;     // that they took
  int64_t waiting_ns = 0;  // of which it waited for others
};

class Ledger {
 public:
  // In memory of its own until move_to.
  Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // What this rank turns to now. Also forgets the detail.
  void enter(Phase phase);
  void enter(Phase phase, int64_t step);
  // More about the phase, for people: "sample 4711 of epoch 2, for which worker 1 waits".
  void detail(std::string_view text);
  // A step is done that took so long, waiting for others included.
  void step_done(double seconds, double waiting);

  // Whether this rank may become a member of one more group.
  bool has_room() const;
  // For people, by bucket: "layer3.0.conv1 ... layer3.2.bn3". Before the first step.
  void name_buckets(std::vector<std::string> names);
  std::vector<std::string> bucket_names() const;

  // Why this rank is about to end. Only the first failure stays. Safe in a signal handler.
  void fail(std::string_view message, int exit_code, bool from_a_peer) noexcept;

  void configure(const WatchOptions& options);
  WatchOptions options() const;

  // Why the run is about to end, once the ranks have agreed on that; else empty.
  void set_diagnosis(std::string text);
  std::string diagnosis() const;

  // Of all ranks by rank, on rank 0, as its watchdog has last seen them; empty where none watches.
  void set_paces(std::vector<RankPace> paces);
  std::vector<RankPace> paces() const;

  const LedgerPage& page() const { return *page_; }
  LedgerPage& page() { return *page_; }
  // Moves to a page that others can read, or, null, back to its own. Nothing else uses the
  // ledger meanwhile.
  void move_to(LedgerPage* page);

 private:
  friend class LedgerGroup;

  std::unique_ptr<LedgerPage> own_;
  LedgerPage* page_;
  mutable std::mutex mutex_;  // over the rest, and over which places of groups are free
  std::vector<std::string> bucket_names_;
  std::string diagnosis_;
  std::vector<RankPace> paces_;
  WatchOptions options_;
};

// A group's place in the ledger of one of its members.
class LedgerGroup {
 public:
  // Each member makes one before the last call by which its communicator is made: whoever waits in
  // the group then finds all members. Throws CommError where the ledger is full. The ledger
  // outlives it.
  LedgerGroup(Ledger& ledger, const Group& group);
  // Removes it, except while an exception unwinds: others may still wait for this rank.
  ~LedgerGroup();
  LedgerGroup(const LedgerGroup&) = delete;
  LedgerGroup& operator=(const LedgerGroup&) = delete;

  // Around each call on the communicator, on the thread that runs it. Returns the number of the
  // collective, or of the transfer, counted from 1.
  uint64_t begin(const CallRecord& call);
  void end();

 private:
  LedgerPage::GroupCalls& calls();

  Ledger& ledger_;
  size_t index_;
};

// CLOCK_MONOTONIC, in nanoseconds.
int64_t monotonic_ns();

}  // namespace trireme::comm
