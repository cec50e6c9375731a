// What is known of a rank at a moment: its page, copied, and what has become of its process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/ledger.h"

namespace trireme::comm {

// A rank as it never changes.
struct Member {
  int host = 0;  // Placement::host
  std::string host_name;
  int pid = 0;
  uint64_t pid_namespace = 0;
};

// The latest call of a process group. Times are CLOCK_MONOTONIC of the host that looks.
struct CallView {
  uint64_t sequence = 0;  // of the latest collective, counted from 1
  int64_t began = 0;      // 0: it is done
  int64_t step = 0;
  int64_t bytes = 0;
  int32_t bucket = -1;
  std::string operation;
  DType dtype = DType::kU8;
  uint64_t transfers = 0;  // begun so far; if the call is one, its number
  uint64_t group = 0;      // Group::id
  std::string group_name;  // Group::name
  bool operator==(const CallView&) const = default;
};

struct RankView {
  int32_t rank = 0;
  int64_t seen = 0;  // when it was so
  int64_t heartbeat = 0;
  Phase phase = Phase::kStart;
  int64_t since = 0;
  int64_t step = 0;
  int64_t steps_here = 0;
  int64_t step_ns = 0;
  int64_t waiting_ns = 0;
  std::string detail;
  std::vector<CallView> calls;  // by group
  int64_t failed = 0;           // 0: it has not
  int32_t exit_code = 0;
  bool from_a_peer = false;
  std::string failure;
  int64_t ended = 0;  // when it was noticed that the process had; 0: it lives
  char state = 0;     // as in /proc/PID/stat, once it is silent; 0: not known
  bool operator==(const RankView&) const = default;
};

RankView look(const LedgerPage& page, int64_t now);

// The page's own account of ranks that call different things; it names them all.
inline constexpr std::string_view kDisagreement = "the ranks disagree";

// "all-reduce #4182, bucket 2 (layer3.0.conv1 ... layer3.2.bn3)", "broadcast #7 of ranks 0 and 2"
std::string describe(const CallView& call, const std::vector<std::string>& bucket_names);
// "forward of step 12", "evaluation after step 12", "data of step 12 (sample 4711)"
std::string describe_phase(const RankView& rank);

}  // namespace trireme::comm
