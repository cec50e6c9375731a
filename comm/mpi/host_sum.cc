#include "comm/mpi/host_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/mpi/sum.h"
#include "comm/watchdog/view.h"
#include "core/error.h"

namespace trireme::comm::mpi {
namespace {

constexpr size_t kLine = 64;                // bytes of a cache line
constexpr size_t kStripeBytes = 256 << 10;  // per rank
constexpr const char* kAllReduce = "all_reduce_sum";
constexpr const char* kBarrier = "barrier";

struct Range {
  size_t begin;
  size_t end;
};

// Returns the bytes of `range` that part `part` of `parts` sums: complete cache lines, so that no
// two ranks write to the same line, and contiguous, since hardware prefetches long streams best.
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
  // The control window is initially zero. No rank uses its barrier before all have passed this one.
  control(local_rank_).self = this_peer(placement.group.world_rank(placement.rank));
  check(MPI_Barrier(host.get()), {"MPI_Barrier"});
  std::vector<Peer> peers;
  for (int i = 0; i < local_ranks_; ++i) peers.push_back(control(i).self);
  peers_ = std::make_unique<PeerWatch>(peers);
  barrier_ = std::make_unique<SharedBarrier>(control(0).barrier, local_ranks_, *peers_);
  inputs_.resize(local_ranks_);
  outputs_.resize(local_ranks_);
}

void HostSum::synchronize(const char* operation, uint64_t window, size_t offset, int64_t count,
                          DType dtype) {
  const uint64_t sequence = ++sequence_;
  const size_t turn = sequence % 2;
  const Intent own = {sequence, window, offset, count, dtype, call_info_};
  control(local_rank_).intents[turn] = own;
  barrier_->wait(operation);
  for (int i = 0; i < local_ranks_; ++i) {
    if (control(i).intents[turn] != own) throw_mismatch(turn);
  }
}

// All ranks of the host call this and throw the same message.
void HostSum::throw_mismatch(size_t turn) {
  const auto same_intents = [&](int rank) {
    int count = 0;
    for (int other = 0; other < local_ranks_; ++other) {
      count += control(rank).intents[turn] == control(other).intents[turn];
    }
    return count;
  };
  // Name the rank whose intent the fewest ranks share, the last one if there are several, and one
  // of the majority.
  int minority = 0;
  int majority = 0;
  for (int i = 1; i < local_ranks_; ++i) {
    if (same_intents(i) <= same_intents(minority)) minority = i;
    if (same_intents(i) > same_intents(majority)) majority = i;
  }
  const std::string message =
      fmt::format("{}: {}, but {}", kMismatch, describe(minority, turn), describe(majority, turn));
  ledger_.fail(message, static_cast<int>(ExitCode::kFailure), /*caused_by_peer=*/false);
  throw CommError(message);
}

std::string HostSum::describe(int local_rank, size_t turn) const {
  const Control& its = control(local_rank);
  const Intent& intent = its.intents[turn];
  CallView call;
  call.operation = intent.count == 0 ? kBarrier : kAllReduce;
  call.sequence = intent.call_info.number;
  call.bucket = intent.call_info.tag.bucket;
  call.group_name = group_name_;
  std::string text =
      fmt::format("rank {} (pid {}) is in {} in step {}", its.self.rank, its.self.pid,
                  trireme::comm::describe(call, ledger_.bucket_names()), intent.call_info.step + 1);
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
    synchronize(kAllReduce, number, offset, count, dtype);
    // With several hosts, write only to the leader's window: the sum over hosts is still to come.
    const size_t outputs = hosts_ > 1 ? 1 : outputs_.size();
    // Start at the end, which the backward pass has written last, so that it is still in cache. The
    // stripes give each rank a share of it.
    const size_t stripe = kStripeBytes * parts.size();
    for (Range remaining = range; remaining.end > remaining.begin;) {
      const size_t begin = remaining.end - std::min(remaining.end - remaining.begin, stripe);
      const Range mine = slice({begin, remaining.end}, local_rank_, local_ranks_);
      for (size_t i = 0; i < parts.size(); ++i) inputs_[i] = outputs_[i] = parts[i] + mine.begin;
      sum(dtype, inputs_, std::span(outputs_).first(outputs),
          static_cast<int64_t>((mine.end - mine.begin) / size));
      remaining.end = begin;
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
  const size_t turn = (sequence_ + 1) % 2;  // as in the synchronize() below
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  std::memcpy(control(local_rank_).slots[turn], data, bytes);
  synchronize(kAllReduce, 0, 0, count, dtype);
  for (int i = 0; i < local_ranks_; ++i) inputs_[i] = control(i).slots[turn];
  // Every rank computes the sum itself, in the same order and so with the same bits.
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
  synchronize(kBarrier, 0, 0, 0, DType::kU8);
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
