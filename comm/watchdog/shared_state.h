// Where the ranks of a host see each other's ledgers: memory that they share, each writing its own
// part only, so that nobody can block another.
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
  // All ranks make it and let go of it together.
  explicit SharedState(Communicator& world);

  LedgerPage& own_page() const { return own().page; }
  const LedgerPage& page(int local_rank) const { return part(local_rank).page; }

  // What this rank would have as the diagnosis of all.
  void propose(const Decision& decision) const;
  // That of the lowest rank, of all that are proposed on this host.
  std::optional<Decision> proposed() const;

  // What this rank knows of another host.
  enum class Link : int32_t { kNone, kOpen, kClosed };
  void note(int host, Link link, int64_t heard) const;
  // What all ranks of this host know of it: `closed` is 1 where all connections are.
  HostView host(int host) const;

 private:
  struct Proposal {
    std::atomic<int64_t> when{0};  // 0: none
    std::atomic<int32_t> rank{0};
    std::atomic<Fault> fault{Fault::kFailed};
    std::atomic<int32_t> rank_at_fault{0};
    std::atomic<int32_t> exit_code{0};
    SharedText<2000> text;
  };
  struct Known {
    std::atomic<Link> link{Link::kNone};
    std::atomic<int64_t> heard{0};
  };
  // Followed by a Known for each host. All zero is its initial state.
  struct Part {
    LedgerPage page;
    Proposal proposal;
  };

  Part& part(int local_rank) const;
  Part& own() const { return part(local_rank_); }
  Known& known(int local_rank, int host) const;

  int local_rank_;
  int local_ranks_;
  std::unique_ptr<HostMemory> memory_;
};

}  // namespace trireme::comm
