// The state of all ranks and hosts at one moment, as one rank knows it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/watchdog/view.h"

namespace trireme::comm {

// The state of another host, combined from what all ranks of this host know.
struct HostView {
  int64_t heard = 0;   // when its latest message arrived
  int64_t closed = 0;  // when the last connection to it was closed; 0 if one is open
};

// The state of all ranks as this rank knows it. Times are CLOCK_MONOTONIC of this host, in
// nanoseconds.
struct RunSnapshot {
  int64_t now = 0;
  int64_t tick = 0;         // interval at which the watchdog takes snapshots
  int64_t awake_since = 0;  // not suspended since then; earlier waiting does not count
  int own_rank = 0;
  WatchOptions options;
  std::vector<std::string> roles;  // by rank; empty if all ranks do the same
  std::vector<Member> members;     // by rank
  std::vector<RankView> ranks;     // by rank
  std::vector<HostView> hosts;     // by host; the entry of this rank's own host is ignored

  // Returns the time since then, without the time before awake_since.
  int64_t age(int64_t when) const { return now - std::max(when, awake_since); }
  // Returns true if the view is recent. Views of ranks on other hosts arrive in messages.
  bool is_fresh(const RankView& view) const { return age(view.seen) <= kFreshTicks * tick; }
  bool has_heartbeat(const RankView& view) const {
    return age(view.heartbeat) <= kFreshTicks * tick;
  }

  // A view older than this, or without a heartbeat for as long, is not used to call a rank late.
  static constexpr int64_t kFreshTicks = 8;
};

}  // namespace trireme::comm
