#include "comm/watchdog/view.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace trireme::comm {
namespace {

// Nothing where the place is free, or becomes so meanwhile.
std::optional<CallView> look(const LedgerPage::GroupCalls& calls) {
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
    call.operation = calls.operation.get();
    if (calls.group.load() != call.group) return {};
    const bool same = calls.sequence.load() == call.sequence &&
                      calls.transfers.load() == call.transfers && calls.began.load() == call.began;
    if (same && call.began >= 0) return call;
  }
  // It changes all the time, so nothing waits, and what it is need not be known.
  CallView busy;
  busy.group = call.group;
  busy.group_name = call.group_name;
  busy.sequence = calls.sequence.load();
  return busy;
}

// What the field calls it.
std::string name_of_operation(const std::string& operation) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"all_reduce_sum", "all-reduce"},
      {"MPI_Allgather", "all-gather"},
      {"MPI_Bcast", "broadcast"},
      {"MPI_Reduce_scatter_block", "reduce-scatter"},
      {"MPI_Send", "send"},
      {"MPI_Recv", "receive"}};
  for (const auto& [name, of_the_field] : kNames) {
    if (operation == name) return std::string(of_the_field);
  }
  return operation.empty() ? "a collective" : operation;
}

bool within_step(Phase phase) {
  return phase == Phase::kData || phase == Phase::kForward || phase == Phase::kBackward ||
         phase == Phase::kCommunication || phase == Phase::kUpdate;
}

}  // namespace

RankView look(const LedgerPage& page, int64_t now) {
  RankView view;
  view.seen = now;
  view.rank = page.rank;
  view.heartbeat = page.heartbeat;
  view.phase = page.phase;
  view.since = page.since;
  view.step = page.step;
  view.steps_here = page.steps_here;
  view.step_ns = page.step_ns;
  view.waiting_ns = page.waiting_ns;
  view.detail = page.detail.get();
  for (const LedgerPage::GroupCalls& calls : page.groups) {
    if (auto call = look(calls)) view.calls.push_back(std::move(*call));
  }
  view.failed = page.failed;
  if (view.failed <= 0) view.failed = 0;  // being written
  if (view.failed == 0) return view;
  view.exit_code = page.exit_code;
  view.from_a_peer = page.from_a_peer;
  view.failure = page.failure.get();
  return view;
}

std::string describe(const CallView& call, const std::vector<std::string>& bucket_names) {
  std::string text = fmt::format("{} #{}", name_of_operation(call.operation),
                                 is_transfer(call.operation) ? call.transfers : call.sequence);
  if (!call.group_name.empty()) text += " of " + call.group_name;
  if (call.bucket < 0) return text;
  text += fmt::format(", bucket {}", call.bucket);
  const auto bucket = static_cast<size_t>(call.bucket);
  if (bucket < bucket_names.size()) text += fmt::format(" ({})", bucket_names[bucket]);
  return text;
}

std::string describe_phase(const RankView& rank) {
  std::string text = name_of(rank.phase);
  // People count steps from 1.
  if (within_step(rank.phase)) {
    text += fmt::format(" of step {}", rank.step + 1);
  } else if (rank.step > 0) {
    text += fmt::format(" after step {}", rank.step);
  }
  if (!rank.detail.empty()) text += fmt::format(" ({})", rank.detail);
  return text;
}

}  // namespace trireme::comm
