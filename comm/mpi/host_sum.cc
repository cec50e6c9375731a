#include "comm/mpi/host_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "comm/memory.h"
#include "comm/mpi/sum.h"
#include "comm/watchdog/view.h"
#include "core/error.h"

namespace trireme::comm::mpi {
namespace {

constexpr size_t kLine = 64;                // bytes of a cache line
constexpr size_t kStripeBytes = 256 << 10;  // per rank
constexpr size_t kSegmentBytes = 4 << 20;   // of a message between hosts

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

// Returns the number of ranks of each host, or {} if the ranks of a host are not consecutive. All
// ranks of the group must call it together.
std::vector<int> ranks_by_host(const Comm& host, const Comm& leaders, const Placement& placement) {
  std::vector<int> counts(static_cast<size_t>(placement.hosts), host.size());
  int first = placement.rank - host.rank();  // equal on all ranks of the host if consecutive
  int lowest = first, highest = first;
  check(MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, host.get()), {"MPI_Allreduce"});
  check(MPI_Allreduce(MPI_IN_PLACE, &highest, 1, MPI_INT, MPI_MAX, host.get()), {"MPI_Allreduce"});
  int consecutive = lowest == highest;
  if (leaders) {
    check(MPI_Allreduce(MPI_IN_PLACE, &consecutive, 1, MPI_INT, MPI_MIN, leaders.get()),
          {"MPI_Allreduce"});
    check(MPI_Allgather(MPI_IN_PLACE, 1, MPI_INT, counts.data(), 1, MPI_INT, leaders.get()),
          {"MPI_Allgather"});
  }
  check(MPI_Bcast(&consecutive, 1, MPI_INT, 0, host.get()), {"MPI_Bcast"});
  check(MPI_Bcast(counts.data(), placement.hosts, MPI_INT, 0, host.get()), {"MPI_Bcast"});
  return consecutive ? counts : std::vector<int>();
}

}  // namespace

const char* HostSum::operation_name(Operation operation) {
  switch (operation) {
    case Operation::kBarrier:
      return "barrier";
    case Operation::kAllReduce:
      return "all_reduce_sum";
    case Operation::kReduceScatter:
      return "reduce_scatter_sum";
    case Operation::kAllGather:
      return "all_gather";
  }
  return "";
}

HostSum::HostSum(const Comm& host, const Comm& leaders, const Placement& placement,
                 const Reduction& reduction, Ledger& ledger)
    : rank_(placement.rank),
      ranks_(placement.ranks),
      local_rank_(host.rank()),
      local_ranks_(host.size()),
      host_(placement.host),
      hosts_(placement.hosts),
      group_name_(placement.group.name),
      leaders_(leaders.get()),
      reduction_(reduction),
      ledger_(ledger),
      controls_(host, sizeof(Control)),
      host_ranks_(ranks_by_host(host, leaders, placement)) {
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

void HostSum::synchronize(Operation operation, uint64_t window, size_t offset, int64_t count,
                          DType dtype) {
  const uint64_t sequence = ++sequence_;
  const size_t turn = sequence % 2;
  const Intent own = {sequence, operation, window, offset, count, dtype, call_info_};
  control(local_rank_).intents[turn] = own;
  barrier_->wait(operation_name(operation));
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
  call.operation = operation_name(intent.operation);
  call.sequence = intent.call_info.number;
  call.bucket = intent.call_info.tag.bucket;
  call.bucket_name = ledger_.bucket_name(call.bucket);
  call.group_name = group_name_;
  std::string text =
      fmt::format("rank {} (pid {}) is in {} in step {}", its.self.rank, its.self.pid,
                  trireme::comm::describe(call), intent.call_info.step + 1);
  if (intent.operation == Operation::kBarrier) return text;
  text += fmt::format(", {} {}", intent.count, name_of(intent.dtype));
  if (intent.window == 0) return text;
  return text + fmt::format(" at byte {} of buffer {}", intent.offset, intent.window);
}

// Sums in stripes, each of which gives every rank a slice. Starts at the end, which the backward
// pass has written last, so that it is still in cache.
void HostSum::sum_slices(const SharedWindow& window, size_t offset, size_t bytes, size_t outputs,
                         DType dtype) {
  const auto parts = window.parts();
  const size_t stripe = kStripeBytes * parts.size();
  for (Range remaining = {offset, offset + bytes}; remaining.end > remaining.begin;) {
    const size_t begin = remaining.end - std::min(remaining.end - remaining.begin, stripe);
    const Range mine = slice({begin, remaining.end}, local_rank_, local_ranks_);
    for (size_t i = 0; i < parts.size(); ++i) inputs_[i] = outputs_[i] = parts[i] + mine.begin;
    sum(dtype, inputs_, std::span(outputs_).first(outputs),
        static_cast<int64_t>((mine.end - mine.begin) / size_of(dtype)));
    remaining.end = begin;
  }
}

void HostSum::sum_window(const SharedWindow& window, uint64_t number, size_t offset, int64_t count,
                         DType dtype) {
  const char* const name = operation_name(Operation::kAllReduce);
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  std::byte* const leader = window.parts()[0] + offset;
  if (local_ranks_ > 1) {
    synchronize(Operation::kAllReduce, number, offset, count, dtype);
    // With several hosts, write only to the leader's window: the sum over hosts is still to come.
    sum_slices(window, offset, bytes, hosts_ > 1 ? 1 : outputs_.size(), dtype);
    barrier_->wait(name);
  }
  if (hosts_ == 1) return;
  if (local_rank_ == 0) reduction_.sum_in_place(leaders_, leader, count, dtype);
  if (local_ranks_ == 1) return;
  barrier_->wait(name);
  if (local_rank_ != 0) std::memcpy(window.own() + offset, leader, bytes);
  barrier_->wait(name);
}

void HostSum::reduce_scatter_window(const SharedWindow& window, uint64_t number, size_t offset,
                                    int64_t count, DType dtype) {
  const char* const name = operation_name(Operation::kReduceScatter);
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  const auto parts = window.parts();
  const size_t own = offset + static_cast<size_t>(rank_) * bytes;
  synchronize(Operation::kReduceScatter, number, offset, count, dtype);
  if (hosts_ == 1) {
    for (size_t i = 0; i < parts.size(); ++i) inputs_[i] = parts[i] + own;
    outputs_[0] = window.own() + own;
    sum(dtype, inputs_, std::span(outputs_).first(1), count);
    return barrier_->wait(name);
  }
  sum_slices(window, offset, static_cast<size_t>(ranks_) * bytes, 1, dtype);
  barrier_->wait(name);
  if (local_rank_ == 0) sum_over_hosts(parts[0] + offset, count, dtype);
  barrier_->wait(name);
  if (local_rank_ != 0) std::memcpy(window.own() + own, parts[0] + own, bytes);
  barrier_->wait(name);
}

// Sums the parts of this host's ranks over the leaders, which exchange them directly: each leader
// sends and receives only what is needed, half the bytes of an all-reduce.
void HostSum::sum_over_hosts(std::byte* parts, int64_t count, DType dtype) {
  const int64_t segment = static_cast<int64_t>(kSegmentBytes / size_of(dtype));
  const auto host_begin = [&](int host) {
    return count * std::accumulate(host_ranks_.begin(), host_ranks_.begin() + host, int64_t{0});
  };
  const int64_t own = host_begin(host_), own_end = host_begin(host_ + 1);
  received_.resize(kSegmentBytes);
  for (int distance = 1; distance < hosts_; ++distance) {
    const int to = (host_ + distance) % hosts_, from = (host_ - distance + hosts_) % hosts_;
    const int64_t its = host_begin(to), its_end = host_begin(to + 1);
    for (int64_t at = 0; at < std::max(own_end - own, its_end - its); at += segment) {
      const auto sent = static_cast<int>(std::clamp<int64_t>(its_end - its - at, 0, segment));
      const auto wanted = static_cast<int>(std::clamp<int64_t>(own_end - own - at, 0, segment));
      MPI_Request send = MPI_REQUEST_NULL;
      if (sent > 0) {
        check(MPI_Isend(comm::at(parts, its + at, dtype), sent, type_of(dtype), to, 0, leaders_,
                        &send),
              {"MPI_Isend", sent, dtype});
      }
      if (wanted > 0) {
        check(MPI_Recv(received_.data(), wanted, type_of(dtype), from, 0, leaders_,
                       MPI_STATUS_IGNORE),
              {"MPI_Recv", wanted, dtype});
        std::byte* const sum_at = comm::at(parts, own + at, dtype);
        const std::array<const std::byte*, 2> inputs{sum_at, received_.data()};
        sum(dtype, inputs, std::span(&sum_at, 1), wanted);
      }
      check(MPI_Wait(&send, MPI_STATUS_IGNORE), {"MPI_Wait", sent, dtype});
    }
  }
}

void HostSum::all_gather_window(const SharedWindow& window, uint64_t number, size_t offset,
                                int64_t count, DType dtype) {
  const char* const name = operation_name(Operation::kAllGather);
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  const size_t own = offset + static_cast<size_t>(rank_) * bytes;
  synchronize(Operation::kAllGather, number, offset, count, dtype);
  // With several hosts, the leader exchanges the parts of its host with other leaders.
  const auto receivers = window.parts().first(hosts_ == 1 ? window.parts().size() : 1);
  for (std::byte* receiver : receivers) {
    if (receiver != window.own()) std::memcpy(receiver + own, window.own() + own, bytes);
  }
  barrier_->wait(name);
  if (hosts_ == 1) return;
  std::byte* const leader = window.parts()[0] + offset;
  if (local_rank_ == 0) {
    std::vector<int> counts, begins;
    int begin = 0;
    for (int ranks : host_ranks_) {
      counts.push_back(ranks * static_cast<int>(count));
      begins.push_back(begin);
      begin += counts.back();
    }
    check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, leader, counts.data(), begins.data(),
                         type_of(dtype), leaders_),
          {"MPI_Allgatherv", count, dtype});
  }
  barrier_->wait(name);
  if (local_rank_ != 0) {
    std::memcpy(window.own() + offset, leader, static_cast<size_t>(ranks_) * bytes);
  }
  barrier_->wait(name);
}

void HostSum::sum_small(void* data, int64_t count, DType dtype) {
  if (local_ranks_ == 1) return reduction_.sum_in_place(leaders_, data, count, dtype);
  const size_t turn = (sequence_ + 1) % 2;  // as in the synchronize() below
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  std::memcpy(control(local_rank_).slots[turn], data, bytes);
  synchronize(Operation::kAllReduce, 0, 0, count, dtype);
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
  barrier_->wait(operation_name(Operation::kAllReduce));
  std::memcpy(data, total, bytes);
}

void HostSum::barrier() {
  synchronize(Operation::kBarrier, 0, 0, 0, DType::kU8);
  if (hosts_ == 1) return;
  if (local_rank_ == 0) check(MPI_Barrier(leaders_), {"MPI_Barrier between hosts"});
  barrier_->wait(operation_name(Operation::kBarrier));
}

std::string HostSum::failure() const {
  if (const Peer* ended = peers_->find_ended()) {
    return fmt::format("rank {} (pid {}) of this host has ended", ended->rank, ended->pid);
  }
  return barrier_->failed() ? "a rank of this host has failed" : "";
}

}  // namespace trireme::comm::mpi
