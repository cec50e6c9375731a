// Which ranks wait in collectives and transfers, and for whom.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/watchdog/snapshot.h"

namespace trireme::comm {

struct Caller {
  const RankView* rank;
  const CallView* call;
};

// A rank that is waiting in a call, and the members of the group that have not called it yet.
struct Wait : Caller {
  std::vector<int> missing;
};

// Refers to the snapshot, which must outlive it.
class Waits {
 public:
  explicit Waits(const RunSnapshot& snapshot);

  // In the order of ranks.
  const std::vector<Wait>& all() const { return waits_; }
  // The ids of all groups, in the order of the ledger entries of their lowest members.
  const std::vector<uint64_t>& groups() const { return groups_; }
  // Returns true if another rank waits for this one.
  bool awaited(int rank) const;
  // Returns true if the rank itself waits, and is not computing during a transfer.
  bool waiting(int rank) const;
  // Returns true if an awaited rank is not waiting itself, and so may still make the call.
  bool awaited_rank_may_call() const;

 private:
  std::vector<int> behind(const CallView& call) const;
  std::vector<int> late_peer(const RankView& view, const CallView& call) const;

  const RunSnapshot& snapshot_;
  std::vector<uint64_t> groups_;
  std::vector<Wait> waits_;
};

// Returns the rank's latest call on the group; null if it is not a member.
const CallView* call_in(const RankView& view, uint64_t group);

}  // namespace trireme::comm
