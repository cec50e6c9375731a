#include "comm/watchdog/waits.h"

#include <algorithm>

namespace trireme::comm {
namespace {

bool is_missing(const Wait& wait, int rank) {
  return std::ranges::find(wait.missing, rank) != wait.missing.end();
}

// Returns true for a transfer between pipeline stages during which the rank computes something
// else.
bool in_background(const Wait& wait) {
  return is_transfer(wait.call->operation) && within_step(wait.rank->phase) &&
         !wait.rank->awaits_transfer;
}

}  // namespace

const CallView* call_in(const RankView& view, uint64_t group) {
  const auto found = std::ranges::find(view.calls, group, &CallView::group);
  return found == view.calls.end() ? nullptr : &*found;
}

Waits::Waits(const RunSnapshot& snapshot) : snapshot_(snapshot) {
  for (const RankView& view : snapshot.ranks) {
    for (const CallView& call : view.calls) {
      if (std::ranges::find(groups_, call.group) == groups_.end()) groups_.push_back(call.group);
      if (call.began == 0 || view.ended != 0 || !snapshot.is_fresh(view)) continue;
      waits_.push_back(
          {{&view, &call}, is_transfer(call.operation) ? late_peer(view, call) : behind(call)});
    }
  }
}

bool Waits::awaited(int rank) const {
  return std::ranges::any_of(waits_, [&](const Wait& each) { return is_missing(each, rank); });
}

bool Waits::waiting(int rank) const {
  return std::ranges::any_of(
      waits_, [&](const Wait& each) { return each.rank->rank == rank && !in_background(each); });
}

bool Waits::awaited_rank_may_call() const {
  return std::ranges::any_of(waits_, [&](const Wait& wait) {
    return std::ranges::any_of(wait.missing, [&](int rank) { return !waiting(rank); });
  });
}

// Returns the members of the call's group that have not called it yet.
std::vector<int> Waits::behind(const CallView& call) const {
  std::vector<int> ranks;
  for (const RankView& other : snapshot_.ranks) {
    const CallView* its = call_in(other, call.group);
    // Every rank is a member of the world, even before its ledger has an entry for it.
    const bool is_member = its || call.group == Group::kWorld;
    if (is_member && (its ? its->sequence : 0) < call.sequence) ranks.push_back(other.rank);
  }
  return ranks;
}

// Returns the other member of a group of two if it has not begun the transfer yet. In larger
// groups the peer is unknown.
std::vector<int> Waits::late_peer(const RankView& view, const CallView& call) const {
  std::vector<int> peers;
  bool late = false;
  for (const RankView& other : snapshot_.ranks) {
    const CallView* its = call_in(other, call.group);
    if (!its || other.rank == view.rank) continue;
    peers.push_back(other.rank);
    late = its->transfers < call.transfers;
  }
  return peers.size() == 1 && late ? peers : std::vector<int>();
}

}  // namespace trireme::comm
