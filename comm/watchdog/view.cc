#include "comm/watchdog/view.h"

#include <fmt/format.h>

#include <utility>

namespace trireme {
namespace {

CallView look(const LedgerPage::Lane& lane) {
  for (int tries = 0; tries < 3; ++tries) {
    CallView call;
    call.began = lane.began.load();
    call.sequence = lane.sequence.load();
    call.step = lane.step.load();
    call.bytes = lane.bytes.load();
    call.bucket = lane.bucket.load();
    call.operation = lane.operation.get();
    const bool same = lane.sequence.load() == call.sequence && lane.began.load() == call.began;
    if (same && call.began >= 0) return call;
  }
  // It changes all the time, so nothing waits, and what it is need not be known.
  CallView call;
  call.sequence = lane.sequence.load();
  return call;
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
  view.beat = page.beat;
  view.phase = page.phase;
  view.since = page.since;
  view.step = page.step;
  view.steps_here = page.steps_here;
  view.step_ns = page.step_ns;
  view.waiting_ns = page.waiting_ns;
  view.detail = page.detail.get();
  for (size_t i = 0; i < view.calls.size(); ++i) view.calls[i] = look(page.lanes[i]);
  view.failed = page.failed;
  if (view.failed <= 0) view.failed = 0;  // being written
  if (view.failed == 0) return view;
  view.exit_code = page.exit_code;
  view.from_a_peer = page.from_a_peer;
  view.failure = page.failure.get();
  return view;
}

std::string describe(const CallView& call, const std::vector<std::string>& bucket_names) {
  std::string text = fmt::format("{} #{}", name_of_operation(call.operation), call.sequence);
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

}  // namespace trireme
