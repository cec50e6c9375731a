// Problems that are reported without ending the run: a rank that is slower than the others, or that
// was suspended for a while.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/watchdog/diagnose.h"

namespace trireme::comm {

class Warnings {
 public:
  // Returns the warnings that this rank should print. Call it at every tick. Each warning is
  // printed by one rank only: rank 0, or rank 1 if the warning is about rank 0 being suspended.
  std::vector<std::string> update(const RunSnapshot& snapshot);

 private:
  void find_resumed(const RunSnapshot& snapshot, std::vector<std::string>& warnings);
  void find_straggler(const RunSnapshot& snapshot, std::vector<std::string>& warnings);

  std::map<int, int64_t> suspended_;  // the last heartbeat of each suspended rank
  // The window of steps over which ranks are compared.
  int64_t window_began_ = 0;
  std::vector<RankView> window_;  // the ranks at its beginning
  int64_t warned_at_ = 0;         // time of the latest straggler warning
  int64_t pause_ = 0;             // min time until the next one
};

}  // namespace trireme::comm
