// Measures which ranks the others wait for, and how long. The numbers come from the ranks' ledgers,
// which the watchdog of rank 0 collects anyway, so no step sends extra messages.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "comm/ledger.h"

namespace trireme::train {

struct RankTimes {
  // The mean milliseconds per step that the other ranks waited, minus those that this rank waited
  // itself, but at least 0. (The last rank to arrive waits for nobody, so its lag is the largest.)
  std::vector<double> lag_ms;
  // The part of the steps' time in which the rank did not wait for other pipeline stages.
  std::vector<double> utilization;
};

// Used by the Reporter of rank 0.
class RankLags {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns the times of each rank since the previous result. `paces` holds all ranks, as returned
  // by Ledger::paces. Returns nullopt between measurements, which are a few seconds apart unless
  // `end` is set, if a rank has done no steps, or if there is only one rank.
  std::optional<RankTimes> update(std::vector<comm::RankPace> paces, Clock::time_point now,
                                  bool end = false);
  // Returns true if update() may return a result at this time.
  bool due(Clock::time_point now) const;

 private:
  std::vector<comm::RankPace> window_start_;
  Clock::time_point window_start_time_;
};

}  // namespace trireme::train
