// Sums over the ranks of a communicator: through shared memory within a host, and by MPI between
// the leaders of the hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/ledger.h"
#include "comm/mpi/checked.h"
#include "comm/mpi/peer_watch.h"
#include "comm/mpi/reduction.h"
#include "comm/mpi/shared_barrier.h"
#include "comm/mpi/shared_window.h"

namespace trireme::comm::mpi {

class HostSum {
 public:
  // `host` connects the ranks of this host. `leaders` connects the first ranks of all hosts and is
  // null on other ranks. `placement` is the placement of this rank. All ranks must call it
  // together.
  HostSum(const Comm& host, const Comm& leaders, const Placement& placement,
          const Reduction& reduction, Ledger& ledger);

  // The ledger's data about an operation, for messages.
  struct CallInfo {
    uint64_t number = 0;
    uint32_t step = 0;
    CallTag tag;
  };
  // Describes the next operation. Call it before each.
  void set_call_info(const CallInfo& info) { call_info_ = info; }

  // Sums `count` elements in place, at `offset` in a window created on `host`. `number` identifies
  // the window and must be equal on all ranks.
  void sum_window(const SharedWindow& window, uint64_t number, size_t offset, int64_t count,
                  DType dtype);
  // Return whether the two functions below can be called: the ranks of each host are consecutive.
  bool has_parts() const { return !host_ranks_.empty(); }
  // The range of the window that begins at `offset` has a part of `count` elements for each rank.
  // The first replaces this rank's part with its sum over all ranks, and leaves the others
  // undefined. The second replaces the parts of all others with theirs.
  void reduce_scatter_window(const SharedWindow& window, uint64_t number, size_t offset,
                             int64_t count, DType dtype);
  void all_gather_window(const SharedWindow& window, uint64_t number, size_t offset, int64_t count,
                         DType dtype);
  // Sums at most kSlotBytes of any memory, by copying them to shared slots.
  void sum_small(void* data, int64_t count, DType dtype);
  static constexpr size_t kSlotBytes = 64 << 10;

  void barrier();
  // Makes all present and future operations of the ranks of this host throw CommError.
  void fail() noexcept { barrier_->fail(); }
  // Returns why the ranks of this host can no longer synchronize; empty if no reason is known.
  // Callable from any thread.
  std::string failure() const;

 private:
  enum class Operation : uint32_t { kBarrier, kAllReduce, kReduceScatter, kAllGather };
  static const char* operation_name(Operation operation);
  // The operation that a rank is about to run. The ranks of a host compare theirs.
  struct Intent {
    uint64_t sequence;
    Operation operation;
    uint64_t window;  // 0 if it uses the slots
    uint64_t offset;
    int64_t count;
    DType dtype;
    CallInfo call_info;
    // Ignores call_info.number, which also counts calls in which the ranks do not synchronize.
    bool operator==(const Intent& other) const {
      return sequence == other.sequence && operation == other.operation && window == other.window &&
             offset == other.offset && count == other.count && dtype == other.dtype &&
             call_info.step == other.call_info.step &&
             call_info.tag.bucket == other.call_info.tag.bucket;
    }
  };
  // A rank's part of the control window. Intents and slots are double-buffered: when a rank writes
  // one, all ranks have passed the barrier after which its previous content was last read.
  struct Control {
    SharedBarrierState barrier;  // only the first rank's is used
    Peer self;
    alignas(64) Intent intents[2];
    alignas(64) std::byte slots[2][kSlotBytes];
  };

  // Waits for all ranks of the host and checks that they run the same operation; throws CommError
  // if not. `window` and `offset` are 0 for slots.
  void synchronize(Operation operation, uint64_t window, size_t offset, int64_t count, DType dtype);
  // Sums `bytes` bytes at `offset` over the ranks of this host, each rank a slice of it. Writes the
  // sum to the windows of the first `outputs` ranks.
  void sum_slices(const SharedWindow& window, size_t offset, size_t bytes, size_t outputs,
                  DType dtype);
  void sum_over_hosts(std::byte* parts, int64_t count, DType dtype);
  [[noreturn]] void throw_mismatch(size_t turn);
  std::string describe(int local_rank, size_t turn) const;
  Control& control(int local_rank) const {
    return *reinterpret_cast<Control*>(controls_.parts()[local_rank]);
  }

  const int rank_;
  const int ranks_;
  const int local_rank_;
  const int local_ranks_;
  const int host_;
  const int hosts_;
  const std::string group_name_;
  MPI_Comm leaders_;
  const Reduction& reduction_;
  Ledger& ledger_;
  CallInfo call_info_;
  SharedWindow controls_;
  std::unique_ptr<PeerWatch> peers_;
  std::unique_ptr<SharedBarrier> barrier_;
  std::vector<int> host_ranks_;  // number of ranks by host; empty unless has_parts()
  uint64_t sequence_ = 0;
  std::vector<std::byte> received_;       // from another host
  std::vector<const std::byte*> inputs_;  // members, so that a sum does not allocate
  std::vector<std::byte*> outputs_;
};

}  // namespace trireme::comm::mpi
