// Shared memory in which the ranks of a host see each other's ledgers. Each rank writes only its
// own part, so that none can block another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "comm/watchdog/message.h"

namespace trireme::comm {

class SharedState {
 public:
  // All ranks must construct and destroy it together.
  explicit SharedState(Communicator& world);

  LedgerRecord& own_record() const { return own().record; }
  const LedgerRecord& record(int local_rank) const { return part(local_rank).record; }

  // Proposes a diagnosis for all ranks to adopt.
  void propose(const Decision& decision) const;
  // Returns the proposal of the lowest rank of this host, if there is one.
  std::optional<Decision> proposed() const;

  // Publishes the state of this rank's connection to another host.
  enum class Link : int32_t { kNone, kOpen, kClosed };
  void set_link(int host, Link link, int64_t heard) const;
  // Returns the combined state of the connections from all ranks of this host to another host.
  // `closed` is 1 if all are closed.
  HostView host(int host) const;

 private:
  struct Proposal {
    std::atomic<int64_t> when{0};  // 0 if there is none
    std::atomic<int32_t> rank{0};
    std::atomic<Fault> fault{Fault::kFailed};
    std::atomic<int32_t> rank_at_fault{0};
    std::atomic<int32_t> exit_code{0};
    SharedText<2000> text;
  };
  struct HostLink {
    std::atomic<Link> link{Link::kNone};
    std::atomic<int64_t> heard{0};
  };
  // Followed by a HostLink for each host. All zero is the initial state.
  struct Part {
    LedgerRecord record;
    Proposal proposal;
  };

  Part& part(int local_rank) const;
  Part& own() const { return part(local_rank_); }
  HostLink& host_link(int local_rank, int host) const;

  int local_rank_;
  int local_ranks_;
  std::unique_ptr<HostMemory> memory_;
};

}  // namespace trireme::comm
