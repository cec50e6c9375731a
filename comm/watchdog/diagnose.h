// Finds out what is wrong with a run, if anything is, from a snapshot of what all ranks are doing.
// Uses no other input, not even the clock, so that tests can construct any situation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/watchdog/snapshot.h"

namespace trireme::comm {

enum class Fault : uint8_t {
  kFailed,       // a rank reported an error or crashed
  kDead,         // the process of a rank ended without reporting an error
  kStopped,      // the process of a rank exists but does not run
  kStuck,        // a rank makes no progress while others wait for it
  kDesync,       // ranks call different collectives, or wait for each other in different ones
  kTransport,    // all ranks are in the same collective, which does not complete
  kHostLost,     // all connections to a host were closed
  kUnreachable,  // no messages arrive from a host
};

struct Diagnosis {
  Fault fault = Fault::kFailed;
  int rank_at_fault = -1;  // -1 if no single rank is
  int exit_code = 1;
  std::string text;  // the message, on one line
};

// Delay from a failure to its diagnosis, so that an earlier failure of another rank, which may
// become visible later, is found.
inline constexpr int64_t kFailureDelay = 200'000'000;
// Delay for a failure with caused_by_peer, in which the original failure may become visible.
inline constexpr int64_t kPeerFailureDelay = 1'500'000'000;
// Time for which a contradiction, such as different collectives with the same number, must last
// before it counts.
inline constexpr int64_t kConfirmDelay = 500'000'000;

// Returns what is wrong, or nullopt if all ranks make progress or may still do so in time.
std::optional<Diagnosis> diagnose(const RunSnapshot& snapshot);

// Returns e.g. "rank 3 (host b, pid 812)" or "rank 3 (stage 1, replica 1, host b, pid 812)".
std::string describe_rank(const RunSnapshot& snapshot, int rank);

}  // namespace trireme::comm
