#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi/checked.h"
#include "comm/mpi/host_sum.h"
#include "comm/mpi/reduction.h"
#include "comm/mpi/session.h"
#include "comm/mpi/shared_window.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "core/host_name.h"

namespace trireme::comm::mpi {
namespace {

// Throws CommError if MPI does not support operations on arrays with a part of `count` elements for
// each of `ranks` ranks, which cannot be split into smaller ones.
void check_parts(const char* operation, int64_t count, int ranks) {
  constexpr int kMax = std::numeric_limits<int>::max();
  if (count <= kMax / ranks) return;
  throw CommError(fmt::format("{} of {} elements per rank: MPI supports at most {}", operation,
                              count, kMax / ranks));
}

Placement make_placement(const Comm& all, const Comm& host, const Comm& leaders, Group group) {
  Placement placement = {.rank = all.rank(),
                         .ranks = all.size(),
                         .local_rank = host.rank(),
                         .local_ranks = host.size(),
                         .host = 0,
                         .hosts = 1,
                         .host_name = host_name(),
                         .group = std::move(group)};
  std::array<int, 2> hosts = {};
  if (leaders) hosts = {leaders.rank(), leaders.size()};
  check(MPI_Bcast(hosts.data(), 2, MPI_INT, 0, host.get()), {"MPI_Bcast"});
  placement.host = hosts[0];
  placement.hosts = hosts[1];
  return placement;
}

class MpiCommunicator final : public Communicator {
 public:
  // `all` connects the ranks of the group, `host` those of this host. All ranks must call it
  // together.
  MpiCommunicator(Comm all, Comm host, std::shared_ptr<Ledger> ledger, Group group)
      : ledger_(std::move(ledger)),
        ledger_group_(*ledger_, group),
        all_(std::move(all)),
        host_(std::move(host)) {
    leaders_ = all_.split(host_.rank() == 0 ? 0 : MPI_UNDEFINED, all_.rank());
    placement_ = make_placement(all_, host_, leaders_, std::move(group));
    sum_ = std::make_unique<HostSum>(host_, leaders_, placement_, reduction_, *ledger_);
  }

  const Placement& placement() const override { return placement_; }
  std::string transport() const override { return "MPI"; }
  std::string failure() const override {
    const std::string reason = sum_->failure();
    return reason.empty() ? ledger_->diagnosis() : reason;
  }
  Ledger& ledger() override { return *ledger_; }

  Buffer allocate(size_t bytes) override {
    auto window = std::make_unique<SharedWindow>(host_, bytes);
    std::byte* data = window->own();
    std::lock_guard lock(mutex_);
    allocations_.push_back(
        std::make_unique<Allocation>(Allocation{std::move(window), ++allocated_}));
    return Buffer(data, bytes, [this](void* memory) { release(memory); });
  }

  std::unique_ptr<HostMemory> share(size_t bytes) override {
    return std::make_unique<SharedWindow>(host_, bytes);
  }

  void all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream,
                      CallTag tag) override {
    check_summable("all_reduce_sum", dtype);
    if (size() == 1 || count == 0) return;
    const Call call = {"all_reduce_sum", count, dtype};
    const size_t bytes = bytes_of(count, dtype);
    if (bytes <= HostSum::kSlotBytes) {
      return run(stream, call, tag,
                 [this, data](int64_t n, DType type) { sum_->sum_small(data, n, type); });
    }
    const Allocation* allocation = find(data, bytes);
    if (!allocation) {
      return run(stream, call, tag, [this, data](int64_t n, DType type) {
        reduction_.sum_in_place(all_.get(), data, n, type);
      });
    }
    run(stream, call, tag, [this, allocation, data](int64_t n, DType type) {
      sum_->sum_window(*allocation->window, allocation->number, allocation->offset(data), n, type);
    });
  }

  void reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                          CallTag tag) override {
    check_summable("reduce_scatter_sum", dtype);
    check_parts("reduce_scatter_sum", count, size());
    if (const Allocation* allocation = find_parts(in, out, count, dtype)) {
      return run(stream, {"reduce_scatter_sum", count, dtype}, tag,
                 [this, allocation, in](int64_t n, DType type) {
                   sum_->reduce_scatter_window(*allocation->window, allocation->number,
                                               allocation->offset(in), n, type);
                 });
    }
    const Call call = {"MPI_Reduce_scatter_block", count, dtype};
    run(stream, call, tag, [this, in, out](int64_t n, DType type) {
      // MPI would put the result at the beginning.
      const bool in_place = out == at(in, n * rank(), type);
      void* const parts = const_cast<void*>(in);
      check(MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : in, in_place ? parts : out,
                                     static_cast<int>(n), type_of(type), reduction_.sum_of(type),
                                     all_.get()),
            {"MPI_Reduce_scatter_block", n, type});
      if (in_place) std::memmove(out, parts, bytes_of(n, type));
    });
  }

  void all_gather(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                  CallTag tag) override {
    check_parts("all_gather", count, size());
    if (const Allocation* allocation = find_parts(out, in, count, dtype)) {
      return run(stream, {"all_gather", count, dtype}, tag,
                 [this, allocation, out](int64_t n, DType type) {
                   sum_->all_gather_window(*allocation->window, allocation->number,
                                           allocation->offset(out), n, type);
                 });
    }
    const Call call = {"MPI_Allgather", count, dtype};
    if (in == at(out, count * rank(), dtype)) in = MPI_IN_PLACE;
    run(stream, call, tag, [this, in, out](int64_t each, DType type) {
      const int n = static_cast<int>(each);
      check(MPI_Allgather(in, n, type_of(type), out, n, type_of(type), all_.get()),
            {"MPI_Allgather", n, type});
    });
  }

  void broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream,
                 CallTag tag) override {
    run(stream, {"MPI_Bcast", count, dtype}, tag, [this, data, root](int64_t all, DType type) {
      in_parts(all, [&](int64_t first, int n) {
        check(MPI_Bcast(at(data, first, type), n, type_of(type), root, all_.get()),
              with_peer("MPI_Bcast", n, type, "from rank", root));
      });
    });
  }

  void send(const void* data, int64_t count, DType dtype, int to, Stream& stream,
            CallTag tag) override {
    run(stream, {"MPI_Send", count, dtype}, tag, [this, data, to](int64_t all, DType type) {
      in_parts(all, [&](int64_t first, int n) {
        const Call call = with_peer("MPI_Send", n, type, "to rank", to);
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Isend(at(data, first, type), n, type_of(type), to, 0, all_.get(), &request),
              call);
        complete(request, call);
      });
    });
  }

  void recv(void* data, int64_t count, DType dtype, int from, Stream& stream,
            CallTag tag) override {
    run(stream, {"MPI_Recv", count, dtype}, tag, [this, data, from](int64_t all, DType type) {
      in_parts(all, [&](int64_t first, int n) {
        const Call call = with_peer("MPI_Recv", n, type, "from rank", from);
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Irecv(at(data, first, type), n, type_of(type), from, 0, all_.get(), &request),
              call);
        MPI_Status status = complete(request, call);
        int received = 0;
        check(MPI_Get_count(&status, type_of(type), &received), call);
        if (received != n) {
          throw CommError(fmt::format("recv of {} {} from rank {}: it sent {}", n, name_of(type),
                                      call.peer, received));
        }
      });
    });
  }

  void barrier(Stream& stream) override {
    run(stream, {"barrier"}, {}, [this](int64_t, DType) { sum_->barrier(); });
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    if (color < 0) throw CommError(fmt::format("split: color {} is negative", color));
    const int own = placement_.group.world_rank(rank());
    // All ranks learn whether a ledger is full, so that all throw and none waits for another.
    int full = ledger_->has_room() ? -1 : own;
    check(MPI_Allreduce(MPI_IN_PLACE, &full, 1, MPI_INT, MPI_MAX, all_.get()), {"MPI_Allreduce"});
    if (full >= 0) {
      throw CommError(fmt::format("split: rank {} is already in {} process groups, the maximum",
                                  full, LedgerRecord::kMaxGroups));
    }
    Comm all = all_.split(color, key);
    std::vector<int> members(all.size());
    check(MPI_Allgather(&own, 1, MPI_INT, members.data(), 1, MPI_INT, all.get()),
          {"MPI_Allgather"});
    Comm host = all.split(placement_.host, all.rank());
    return std::make_unique<MpiCommunicator>(
        std::move(all), std::move(host), ledger_,
        subgroup(placement_.group, ++splits_, std::move(members)));
  }

  void cancel() noexcept override { cancelled_ = true; }

  [[noreturn]] void abort(int exit_code) noexcept override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  // A buffer returned by allocate().
  struct Allocation {
    std::unique_ptr<SharedWindow> window;
    uint64_t number;  // equal on all ranks

    size_t offset(const void* data) const {
      return static_cast<size_t>(static_cast<const std::byte*>(data) - window->own());
    }
  };

  const Allocation* find(const void* data, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    std::lock_guard lock(mutex_);
    for (const auto& allocation : allocations_) {
      const auto own = reinterpret_cast<uintptr_t>(allocation->window->own());
      if (begin >= own && begin + bytes <= own + allocation->window->bytes()) {
        return allocation.get();
      }
    }
    return nullptr;
  }

  // Returns the buffer that holds `parts`, one of `count` elements for each rank, if `own` is the
  // part of this rank, and if such parts can be summed and gathered within the buffer.
  const Allocation* find_parts(const void* parts, const void* own, int64_t count, DType dtype) {
    if (!sum_->has_parts() || count == 0 || own != at(parts, count * rank(), dtype)) return nullptr;
    return find(parts, bytes_of(count * size(), dtype));
  }

  void release(const void* data) {
    // Declared before the lock: destroying it is collective and must happen without the lock.
    std::unique_ptr<Allocation> allocation;
    std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(
        allocations_, [&](const auto& each) { return each->window->own() == data; });
    allocation = std::move(*found);
    allocations_.erase(found);
  }

  // Queues work(count, dtype) on the stream, recorded in the ledger. If it throws, the operations
  // of the other ranks of this host fail, too.
  template <class Work>
  void run(Stream& stream, const Call& call, CallTag tag, Work work) {
    // The step at the time of the call: the task may run when the host is already in another step.
    // 32 bits, since a Task has a small fixed size.
    const auto step = static_cast<uint32_t>(ledger_->record().step);
    if (fault_point("call", tag.bucket)) return;
    stream.run(
        Task([this, name = call.name, count = call.count, tag, step, dtype = call.dtype, work] {
          const int64_t bytes = std::max<int64_t>(count, 0) * static_cast<int64_t>(size_of(dtype));
          const uint64_t number = ledger_group_.begin({name, bytes, tag, step, dtype});
          sum_->set_call_info({number, step, tag});
          try {
            fault_point("collective", tag.bucket);
            work(count, dtype);
          } catch (...) {
            sum_->fail();
            throw;
          }
          ledger_group_.end();
        }));
  }

  // Waits until a transfer is complete. Sleeps between checks: the peer may still compute for long,
  // and MPI's own waiting takes a core.
  MPI_Status complete(MPI_Request request, const Call& call) const {
    constexpr auto kMaxSleep = std::chrono::microseconds(200);
    auto sleep = std::chrono::microseconds(0);
    for (;;) {
      int done = 0;
      MPI_Status status;
      check(MPI_Test(&request, &done, &status), call);
      if (done) return status;
      if (cancelled_) {
        MPI_Request_free(&request);
        throw CommError(describe(call) + " was cancelled, since this rank has failed");
      }
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep * 3 / 2 + std::chrono::microseconds(2), kMaxSleep);
    }
  }

  // Returns the call for messages, in which the peer is a rank of the world.
  Call with_peer(const char* name, int64_t count, DType dtype, const char* role, int peer) const {
    return {name, count, dtype, role, placement_.group.world_rank(peer)};
  }

  const std::shared_ptr<Ledger> ledger_;
  LedgerGroup ledger_group_;  // outlives the members whose destruction is collective
  Comm all_;
  Comm host_;
  Comm leaders_;
  Placement placement_;
  Reduction reduction_;
  std::unique_ptr<HostSum> sum_;
  std::mutex mutex_;  // guards allocations_
  std::vector<std::unique_ptr<Allocation>> allocations_;
  uint64_t allocated_ = 0;
  uint64_t splits_ = 0;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace

std::unique_ptr<Communicator> create_communicator(std::optional<int> host_color) {
  MPI_Comm duplicate = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &duplicate), {"MPI_Comm_dup"});
  Comm all(duplicate);
  Comm host = all.split_by_host();
  if (host_color) host = host.split(*host_color, host.rank());
  Group world = world_group(all.size());
  return std::make_unique<MpiCommunicator>(std::move(all), std::move(host),
                                           std::make_shared<Ledger>(), std::move(world));
}

}  // namespace trireme::comm::mpi
