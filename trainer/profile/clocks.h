// How far the clocks of ranks are apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace trireme::train {

// Nanoseconds of the steady clock.
struct ClockOffset {
  int64_t ahead = 0;  // of rank 0's; 0 where the two may be the same clock
  int64_t uncertainty = 0;
};

// One round on one rank: when it began to tell its time, and when it had heard those of all others.
struct ClockExchange {
  int64_t told = 0;
  int64_t heard = 0;
};

// Nobody hears of what has not been told yet, so each round bounds the offset on both sides.
ClockOffset clock_offset(std::span<const ClockExchange> reference,
                         std::span<const ClockExchange> other);

// Of each rank. All ranks call it together.
std::vector<ClockOffset> measure_clocks(comm::Communicator& communicator);

}  // namespace trireme::train
