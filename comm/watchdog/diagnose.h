// From what all ranks were doing at a moment to what is wrong, if anything is. Nothing here looks
// at the world or the clock: all that counts is handed in, so every snapshot can be tested.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/watchdog/view.h"

namespace trireme::comm {

// Another host, as all ranks of this one together know it.
struct HostView {
  int64_t heard = 0;   // when the latest message from it came
  int64_t closed = 0;  // since when all connections to it are closed; 0: one is open
};

struct RunSnapshot {
  int64_t now = 0;
  int64_t tick = 0;         // between two looks
  int64_t awake_since = 0;  // since when this process looks without a gap: none waits longer
  int own_rank = 0;
  WatchOptions options;
  std::vector<std::string> bucket_names;
  std::vector<Member> members;  // by rank
  std::vector<RankView> ranks;  // by rank
  std::vector<HostView> hosts;  // by host; that of this rank's own is not looked at
};

enum class Fault : uint8_t {
  kFailed,       // a rank has said so, or has crashed
  kDead,         // its process has ended without a word
  kStopped,      // its process is there but does not run
  kStuck,        // it does not come where others wait for it
  kDesync,       // ranks wait for each other in different places
  kTransport,    // all are where they should be, but nothing moves
  kHostLost,     // all that ran there has ended
  kUnreachable,  // nothing comes from there
};

struct Diagnosis {
  Fault fault = Fault::kFailed;
  int rank_at_fault = -1;  // a rank, where one is to blame
  int exit_code = 1;
  std::string text;  // one paragraph
};

// From a failure to the diagnosis: causes that show a little later but were earlier are found.
inline constexpr int64_t kSettle = 200'000'000;
// For what only looks like another rank's end: how long the cause may take to show.
inline constexpr int64_t kPatience = 1'500'000'000;
// For what cannot be meant, such as different collectives under the same number: to be so twice.
inline constexpr int64_t kSure = 500'000'000;

std::optional<Diagnosis> diagnose(const RunSnapshot& snapshot);

// "rank 3 (host b, pid 812)"
std::string describe_rank(const RunSnapshot& snapshot, int rank);

}  // namespace trireme::comm
