#include "comm/watchdog/view.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace trireme::comm {
namespace {

// Returns a consistent copy of the entry, or nothing if it is free or is freed meanwhile.
std::optional<CallView> read_calls(const LedgerRecord::GroupCalls& calls) {
  CallView call;
  for (int tries = 0; tries < 3; ++tries) {
    call.group = calls.group.load();
    if (call.group == 0) return {};
    call.group_name = calls.name.get();
    call.began = calls.began.load();
    call.sequence = calls.sequence.load();
    call.transfers = calls.transfers.load();
    call.step = calls.step.load();
    call.bytes = calls.bytes.load();
    call.dtype = calls.dtype.load();
    call.bucket = calls.bucket.load();
    if (call.bucket >= 0) call.bucket_name = calls.bucket_name.get();
    call.operation = calls.operation.get();
    if (calls.group.load() != call.group) return {};
    const bool same = calls.sequence.load() == call.sequence &&
                      calls.transfers.load() == call.transfers && calls.began.load() == call.began;
    if (same && call.began >= 0) return call;
  }
  // The entry keeps changing, so no call is waiting and only the counters matter.
  CallView busy;
  busy.group = call.group;
  busy.group_name = call.group_name;
  busy.sequence = calls.sequence.load();
  busy.transfers = calls.transfers.load();
  return busy;
}

// Returns the usual name of the collective, e.g. "all-reduce".
std::string name_of_operation(const std::string& operation) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"all_reduce_sum", "all-reduce"},
      {"all_gather", "all-gather"},
      {"MPI_Allgather", "all-gather"},
      {"MPI_Bcast", "broadcast"},
      {"reduce_scatter_sum", "reduce-scatter"},
      {"MPI_Reduce_scatter_block", "reduce-scatter"},
      {"MPI_Send", "send"},
      {"MPI_Recv", "receive"}};
  for (const auto& [name, usual_name] : kNames) {
    if (operation == name) return std::string(usual_name);
  }
  return operation.empty() ? "a collective" : operation;
}

}  // namespace

RankView read_record(const LedgerRecord& record, int64_t now) {
  RankView view;
  view.seen = now;
  view.rank = record.rank;
  view.heartbeat = record.heartbeat;
  view.phase = record.phase;
  view.since = record.since;
  view.step = record.step;
  view.process_steps = record.process_steps;
  view.step_ns = record.step_ns;
  view.waiting_ns = record.waiting_ns;
  view.idle_ns = record.idle_ns;
  view.awaits_transfer = record.awaits_transfer;
  view.detail = record.detail.get();
  for (const LedgerRecord::GroupCalls& calls : record.groups) {
    if (auto call = read_calls(calls)) view.calls.push_back(std::move(*call));
  }
  view.failed = record.failed;
  if (view.failed <= 0) view.failed = 0;  // being written
  if (view.failed == 0) return view;
  view.exit_code = record.exit_code;
  view.caused_by_peer = record.caused_by_peer;
  view.failure = record.failure.get();
  return view;
}

std::string describe(const CallView& call) {
  std::string text = fmt::format("{} #{}", name_of_operation(call.operation),
                                 is_transfer(call.operation) ? call.transfers : call.sequence);
  if (!call.group_name.empty()) text += " of " + call.group_name;
  if (call.bucket < 0) return text;
  text += fmt::format(", bucket {}", call.bucket);
  if (!call.bucket_name.empty()) text += fmt::format(" ({})", call.bucket_name);
  return text;
}

bool within_step(Phase phase) {
  return phase == Phase::kData || phase == Phase::kForward || phase == Phase::kBackward ||
         phase == Phase::kCommunication || phase == Phase::kUpdate;
}

std::string describe_phase(const RankView& rank) {
  std::string text = name_of(rank.phase);
  // Messages count steps from 1.
  if (within_step(rank.phase)) {
    text += fmt::format(" of step {}", rank.step + 1);
  } else if (rank.step > 0) {
    text += fmt::format(" after step {}", rank.step);
  }
  if (!rank.detail.empty()) text += fmt::format(" ({})", rank.detail);
  return text;
}

}  // namespace trireme::comm
