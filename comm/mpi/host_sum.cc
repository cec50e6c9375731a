#include "comm/mpi/host_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/mpi/sum.h"
#include "comm/watchdog/view.h"
#include "core/error.h"

namespace trireme::comm::mpi {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kStripeBytes = 256 << 10;  // of one rank
constexpr const char* kAllReduce = "all_reduce_sum";
constexpr const char* kBarrier = "barrier";

struct Range {
  size_t begin;
  size_t end;
};

// Bytes of [begin, end) that part `part` of `parts` works on: whole cache lines, so that no two
// write one, and in one piece: the hardware prefetches long streams best.
Range slice(Range range, int part, int parts) {
  const size_t first = range.begin / kLine;
  const size_t lines = (range.end + kLine - 1) / kLine - first;
  const auto edge = [&](int i) {
    const size_t line = first + lines * static_cast<size_t>(i) / static_cast<size_t>(parts);
    return std::clamp(line * kLine, range.begin, range.end);
  };
  return {edge(part), edge(part + 1)};
}

}  // namespace

HostSum::HostSum(const Comm& host, const Comm& leaders, const Placement& placement,
                 const Reduction& reduction, Ledger& ledger)
    : local_rank_(host.rank()),
      local_ranks_(host.size()),
      hosts_(placement.hosts),
      group_name_(placement.group.name),
      leaders_(leaders.get()),
      reduction_(reduction),
      ledger_(ledger),
      controls_(host, sizeof(Control)) {
  // All zero is the initial state; no rank waits on the barrier before all have got here.
  control(local_rank_).self = this_peer(placement.group.world_rank(placement.rank));
  check(MPI_Barrier(host.get()), {"MPI_Barrier"});
  std::vector<Peer> peers;
  for (int i = 0; i < local_ranks_; ++i) peers.push_back(control(i).self);
  peers_ = std::make_unique<PeerWatch>(peers);
  barrier_ = std::make_unique<SharedBarrier>(control(0).barrier, local_ranks_, *peers_);
  inputs_.resize(local_ranks_);
  outputs_.resize(local_ranks_);
}

void HostSum::meet(const char* operation, uint64_t window, size_t offset, int64_t count,
                   DType dtype) {
  const uint64_t sequence = ++sequence_;
  const size_t turn = sequence % 2;
  const Intent own = {sequence, window, offset, count, dtype, about_};
  control(local_rank_).intents[turn] = own;
  barrier_->wait(operation);
  for (int i = 0; i < local_ranks_; ++i) {
    if (control(i).intents[turn] != own) refuse(turn);
  }
}

// Every rank comes here and says the same.
void HostSum::refuse(size_t turn) {
  const auto alike = [&](int rank) {
    int count = 0;
    for (int other = 0; other < local_ranks_; ++other) {
      count += control(rank).intents[turn] == control(other).intents[turn];
    }
    return count;
  };
  // The one that has the fewest with it went astray; of as many, the last.
  int stray = 0;
  int right = 0;
  for (int i = 1; i < local_ranks_; ++i) {
    if (alike(i) <= alike(stray)) stray = i;
    if (alike(i) > alike(right)) right = i;
  }
  const std::string message =
      fmt::format("{}: {}, but {}", kMismatch, describe(stray, turn), describe(right, turn));
  ledger_.fail(message, static_cast<int>(ExitCode::kFailure), /*caused_by_peer=*/false);
  throw CommError(message);
}

std::string HostSum::describe(int local_rank, size_t turn) const {
  const Control& its = control(local_rank);
  const Intent& intent = its.intents[turn];
  CallView call;
  call.operation = intent.count == 0 ? kBarrier : kAllReduce;
  call.sequence = intent.about.number;
  call.bucket = intent.about.tag.bucket;
  call.group_name = group_name_;
  std::string text =
      fmt::format("rank {} (pid {}) is in {} in step {}", its.self.rank, its.self.pid,
                  trireme::comm::describe(call, ledger_.bucket_names()), intent.about.step + 1);
  if (intent.count == 0) return text;
  text += fmt::format(", {} {}", intent.count, name_of(intent.dtype));
  if (intent.window == 0) return text;
  return text + fmt::format(" at byte {} of buffer {}", intent.offset, intent.window);
}

void HostSum::sum_window(const SharedWindow& window, uint64_t number, size_t offset, int64_t count,
                         DType dtype) {
  const size_t size = size_of(dtype);
  const Range range = {offset, offset + static_cast<size_t>(count) * size};
  const auto parts = window.parts();
  if (local_ranks_ > 1) {
    meet(kAllReduce, number, offset, count, dtype);
    // With more hosts only the leader's copy is read before it changes again.
    const size_t outputs = hosts_ > 1 ? 1 : outputs_.size();
    // From the end, where the backward pass has written last: that is still in cache, and in
    // stripes each rank gets its share of it.
    const size_t stripe = kStripeBytes * parts.size();
    for (Range rest = range; rest.end > rest.begin;) {
      const size_t begin = rest.end - std::min(rest.end - rest.begin, stripe);
      const Range mine = slice({begin, rest.end}, local_rank_, local_ranks_);
      for (size_t i = 0; i < parts.size(); ++i) inputs_[i] = outputs_[i] = parts[i] + mine.begin;
      sum(dtype, inputs_, std::span(outputs_).first(outputs),
          static_cast<int64_t>((mine.end - mine.begin) / size));
      rest.end = begin;
    }
    barrier_->wait(kAllReduce);
  }
  if (hosts_ == 1) return;
  if (local_rank_ == 0) reduction_.sum_in_place(leaders_, parts[0] + offset, count, dtype);
  if (local_ranks_ == 1) return;
  barrier_->wait(kAllReduce);
  if (local_rank_ != 0) {
    std::memcpy(window.own() + offset, parts[0] + offset, range.end - range.begin);
  }
  barrier_->wait(kAllReduce);
}

void HostSum::sum_small(void* data, int64_t count, DType dtype) {
  if (local_ranks_ == 1) return reduction_.sum_in_place(leaders_, data, count, dtype);
  const size_t turn = (sequence_ + 1) % 2;  // that of the coming meet
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  std::memcpy(control(local_rank_).slots[turn], data, bytes);
  meet(kAllReduce, 0, 0, count, dtype);
  for (int i = 0; i < local_ranks_; ++i) inputs_[i] = control(i).slots[turn];
  // Every rank adds up for itself: in the same order, so with the same bits.
  if (hosts_ == 1) {
    auto* output = static_cast<std::byte*>(data);
    return sum(dtype, inputs_, std::span(&output, 1), count);
  }
  std::byte* total = control(0).slots[turn];
  if (local_rank_ == 0) {
    sum(dtype, inputs_, std::span(&total, 1), count);
    reduction_.sum_in_place(leaders_, total, count, dtype);
  }
  barrier_->wait(kAllReduce);
  std::memcpy(data, total, bytes);
}

void HostSum::barrier() {
  meet(kBarrier, 0, 0, 0, DType::kU8);
  if (hosts_ == 1) return;
  if (local_rank_ == 0) check(MPI_Barrier(leaders_), {"MPI_Barrier between hosts"});
  barrier_->wait(kBarrier);
}

std::string HostSum::failure() const {
  if (const Peer* ended = peers_->find_ended()) {
    return fmt::format("rank {} (pid {}) of this host has ended", ended->rank, ended->pid);
  }
  return barrier_->failed() ? "a rank of this host has failed" : "";
}

}  // namespace trireme::comm::mpi
