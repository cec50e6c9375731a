#include "comm/watchdog/shared_state.h"

#include <algorithm>

namespace trireme::comm {
namespace {

constexpr int64_t kBeingWritten = -1;

}  // namespace

SharedState::SharedState(Communicator& world)
    : local_rank_(world.placement().local_rank),
      local_ranks_(world.placement().local_ranks),
      memory_(world.share(sizeof(Part) +
                          static_cast<size_t>(world.placement().hosts) * sizeof(HostLink))) {}

SharedState::Part& SharedState::part(int local_rank) const {
  return *reinterpret_cast<Part*>(memory_->parts()[local_rank]);
}

SharedState::HostLink& SharedState::host_link(int local_rank, int host) const {
  return reinterpret_cast<HostLink*>(&part(local_rank) + 1)[host];
}

void SharedState::propose(const Decision& decision) const {
  Proposal& proposal = own().proposal;
  proposal.when = kBeingWritten;
  proposal.rank = decision.rank;
  proposal.fault = decision.diagnosis.fault;
  proposal.rank_at_fault = decision.diagnosis.rank_at_fault;
  proposal.exit_code = decision.diagnosis.exit_code;
  proposal.text.set(decision.diagnosis.text);
  proposal.when = decision.when;
}

std::optional<Decision> SharedState::proposed() const {
  std::optional<Decision> lowest;
  for (int i = 0; i < local_ranks_; ++i) {
    const Proposal& proposal = part(i).proposal;
    const int64_t when = proposal.when;
    if (when <= 0) continue;
    Decision decision = {
        when,
        proposal.rank,
        {proposal.fault, proposal.rank_at_fault, proposal.exit_code, proposal.text.get()}};
    if (proposal.when != when) continue;  // it is being replaced
    if (!lowest || decision.rank < lowest->rank) lowest = std::move(decision);
  }
  return lowest;
}

void SharedState::set_link(int host, Link link, int64_t heard) const {
  HostLink& mine = host_link(local_rank_, host);
  mine.heard = heard;
  mine.link = link;
}

HostView SharedState::host(int host) const {
  HostView view;
  bool open = false;
  for (int i = 0; i < local_ranks_; ++i) {
    const HostLink& its = host_link(i, host);
    view.heard = std::max(view.heard, its.heard.load());
    open = open || its.link == Link::kOpen;
    if (its.link == Link::kClosed) view.closed = 1;
  }
  if (open) view.closed = 0;
  return view;
}

}  // namespace trireme::comm
