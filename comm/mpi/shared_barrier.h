// A barrier for processes that share memory: a short spin, then sleep, so that waiting for a slow
// rank leaves the core to those that compute.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/mpi/peer_watch.h"

namespace trireme::comm::mpi {

// What lies in the shared memory; all zero at first. (std::atomic::wait cannot be used on it: it
// sleeps on a futex private to the process.)
struct SharedBarrierState {
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> epoch{0};  // what sleepers watch
  std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> failed{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// One rank's handle.
class SharedBarrier {
 public:
  SharedBarrier(SharedBarrierState& state, int ranks, const PeerWatch& peers);

  // Returns when all ranks have called it; what they wrote before is seen after. Throws CommError,
  // with the operation in its message, when a peer has ended or has called fail().
  void wait(const char* operation);

  // Makes every present and later wait throw, on all ranks.
  void fail() noexcept;
  bool failed() const { return state_.failed.load() != 0; }

 private:
  void throw_if_failed(const char* operation) const;
  void sleep(uint32_t epoch, const char* operation);

  SharedBarrierState& state_;
  const uint32_t ranks_;
  const PeerWatch& peers_;
  const int spins_;
};

}  // namespace trireme::comm::mpi
