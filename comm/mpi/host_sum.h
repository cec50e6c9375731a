// All-reduce over the ranks of a communicator: inside each host through shared memory, between
// hosts by MPI among their leaders.
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
  // `host`: the ranks of this host. `leaders`: the first rank of each host; null on other ranks.
  // All ranks of the communicator call it together; `placement` is that of this one.
  HostSum(const Comm& host, const Comm& leaders, const Placement& placement,
          const Reduction& reduction, Ledger& ledger);

  // What the ledger knows of the operation that comes next.
  struct About {
    uint64_t number = 0;
    uint32_t step = 0;
    CallTag tag;
  };
  void about(const About& next) { about_ = next; }

  // In place in a window made on `host`, whose number is the same on all ranks.
  void sum_window(const SharedWindow& window, uint64_t number, size_t offset, int64_t count,
                  DType dtype);
  // Anywhere, through slots: up to this size.
  void sum_small(void* data, int64_t count, DType dtype);
  static constexpr size_t kSlotBytes = 64 << 10;

  void barrier();
  // Makes the ranks of this host, if they wait or ever come to, fail too.
  void fail() noexcept { barrier_->fail(); }
  // Why these ranks will not meet again, as far as can be seen from here; else empty. From any
  // thread.
  std::string failure() const;

 private:
  // What a rank is about to do; the ranks of a host compare theirs.
  struct Intent {
    uint64_t sequence;
    uint64_t window;  // 0: slots
    uint64_t offset;
    int64_t count;  // 0: a barrier
    DType dtype;
    About about;
    // Their numbers count calls in which ranks need not meet.
    bool operator==(const Intent& other) const {
      return sequence == other.sequence && window == other.window && offset == other.offset &&
             count == other.count && dtype == other.dtype && about.step == other.about.step &&
             about.tag.bucket == other.about.tag.bucket;
    }
  };
  // A rank's part of the control window. Two of each, used in turn: a rank that writes one knows
  // that all have passed the barrier after which the previous content was read.
  struct Control {
    SharedBarrierState barrier;  // the first rank's counts
    Peer self;
    alignas(64) Intent intents[2];
    alignas(64) std::byte slots[2][kSlotBytes];
  };

  // Comes back when all ranks of the host are here. `window`, `offset`: 0 for slots.
  void meet(const char* operation, uint64_t window, size_t offset, int64_t count, DType dtype);
  [[noreturn]] void refuse(size_t turn);
  std::string describe(int local_rank, size_t turn) const;
  Control& control(int local_rank) const {
    return *reinterpret_cast<Control*>(controls_.parts()[local_rank]);
  }

  const int local_rank_;
  const int local_ranks_;
  const int hosts_;
  const std::string group_name_;
  MPI_Comm leaders_;
  const Reduction& reduction_;
  Ledger& ledger_;
  About about_;
  SharedWindow controls_;
  std::unique_ptr<PeerWatch> peers_;
  std::unique_ptr<SharedBarrier> barrier_;
  uint64_t sequence_ = 0;
  std::vector<const std::byte*> inputs_;  // kept, so that a sum allocates nothing
  std::vector<std::byte*> outputs_;
};

}  // namespace trireme::comm::mpi
