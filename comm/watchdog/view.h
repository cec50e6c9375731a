// The state of a rank at one moment: a copy of its ledger record, and the state of its process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/ledger.h"

namespace trireme::comm {

// The properties of a rank that do not change during a run.
struct Member {
  int host = 0;  // Placement::host
  std::string host_name;
  int pid = 0;
  uint64_t pid_namespace = 0;
};

// A rank's latest call on a process group; see LedgerRecord::GroupCalls. Times are CLOCK_MONOTONIC
// of the host on which the view is used.
struct CallView {
  uint64_t sequence = 0;  // number of the latest collective, counted from 1
  int64_t began = 0;      // 0 if the call is done
  int64_t step = 0;
  int64_t bytes = 0;
  int32_t bucket = -1;
  std::string bucket_name;
  std::string operation;
  DType dtype = DType::kU8;
  uint64_t transfers = 0;  // number of transfers begun so far
  uint64_t group = 0;      // Group::id
  std::string group_name;  // Group::name
  bool operator==(const CallView&) const = default;
};

// A copy of a LedgerRecord, which documents the fields not explained here.
struct RankView {
  int32_t rank = 0;
  int64_t seen = 0;  // when the copy was taken
  int64_t heartbeat = 0;
  Phase phase = Phase::kStart;
  int64_t since = 0;
  int64_t step = 0;
  int64_t process_steps = 0;
  int64_t step_ns = 0;
  int64_t waiting_ns = 0;
  int64_t idle_ns = 0;
  bool awaits_transfer = false;
  std::string detail;
  std::vector<CallView> calls;  // by group
  int64_t failed = 0;           // 0 if the rank has not failed
  int32_t exit_code = 0;
  bool caused_by_peer = false;
  std::string failure;
  int64_t ended = 0;  // when the end of the process was noticed; 0 if it is running
  char state = 0;     // as in /proc/PID/stat; read if the heartbeat is late, otherwise 0
  bool operator==(const RankView&) const = default;
};

RankView read_record(const LedgerRecord& record, int64_t now);

// The beginning of all messages about ranks that call different collectives. A
// LedgerRecord::failure that begins with it names all ranks involved.
inline constexpr std::string_view kMismatch = "mismatched collectives";

// Returns e.g. "all-reduce #4182, bucket 2 (layer3.0.conv1 ... layer3.2.bn3)" or "broadcast #7 of
// ranks 0 and 2".
std::string describe(const CallView& call);
// Returns whether a rank in this phase computes a training step.
bool within_step(Phase phase);
// Returns e.g. "forward of step 12", "evaluation after step 12" or "data of step 12 (sample 4711)".
std::string describe_phase(const RankView& rank);

}  // namespace trireme::comm
