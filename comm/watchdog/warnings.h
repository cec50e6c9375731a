// What is worth a word and does not end the run: a rank that is slower than the others, one that
// was stopped for a while.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/watchdog/diagnose.h"

namespace trireme::comm {

class Warnings {
 public:
  // At every tick. What this rank is to tell: of several that see the same, the lowest does that is
  // not concerned itself.
  std::vector<std::string> look(const RunSnapshot& snapshot);

 private:
  void look_for_stopped(const RunSnapshot& snapshot, std::vector<std::string>& warnings);
  void look_for_straggler(const RunSnapshot& snapshot, std::vector<std::string>& warnings);

  // Those that are stopped, with their heartbeat before.
  std::map<int, int64_t> stopped_;
  // A window of steps: how it began.
  int64_t window_began_ = 0;
  std::vector<RankView> window_;
  int64_t told_at_ = 0;
  int64_t pause_ = 0;  // until it may be told again
};

}  // namespace trireme::comm
