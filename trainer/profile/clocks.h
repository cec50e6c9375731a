// Measures the offsets between the clocks of the ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace trireme::train {

// The offset of a rank's steady clock from rank 0's, in nanoseconds.
struct ClockOffset {
  int64_t ahead = 0;        // 0 if the two may be the same clock
  int64_t uncertainty = 0;  // maximum error of `ahead`
};

// The times at which an all-gather began and ended on one rank.
struct ClockExchange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns the offset of `other` from `reference`, given the times of the same all-gathers on both.
// No rank finishes an all-gather before all ranks have begun it, so each one bounds the offset from
// both sides.
ClockOffset clock_offset(std::span<const ClockExchange> reference,
                         std::span<const ClockExchange> other);

// Returns the offset of each rank. Collective.
std::vector<ClockOffset> measure_clocks(comm::Communicator& communicator);

}  // namespace trireme::train
