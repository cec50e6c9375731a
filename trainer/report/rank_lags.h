// For which rank the others wait, and how long: from the ranks' ledgers, which the watchdog of
// rank 0 sees, so that no step sends anything for it.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "comm/ledger.h"

namespace trireme::train {

class RankLags {
 public:
  using Clock = std::chrono::steady_clock;

  // `paces`: of all ranks, as Ledger::paces. Returns, every few seconds or at the `end`, by rank
  // the mean milliseconds of a step that the others waited in sums longer than it did: a rank that
  // comes last waits for nobody. Nothing where there are no steps to tell of, or is only one rank.
  std::optional<std::vector<double>> look(std::vector<comm::RankPace> paces, Clock::time_point now,
                                          bool end = false);
  // Whether a look may tell something.
  bool due(Clock::time_point now) const;

 private:
  std::vector<comm::RankPace> begin_;  // of the window
  Clock::time_point began_;
};

}  // namespace trireme::train
