// A barrier for processes that share memory. It spins briefly and then sleeps, so that waiting for
// a slow rank leaves the core to threads that compute.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/mpi/peer_watch.h"

namespace trireme::comm::mpi {

// The state in shared memory; all zero is the initial state. (std::atomic::wait cannot be used: it
// sleeps on a futex that is private to the process.)
struct SharedBarrierState {
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> epoch{0};  // the futex on which ranks sleep
  std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> failed{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// One rank's handle to the barrier.
class SharedBarrier {
 public:
  SharedBarrier(SharedBarrierState& state, int ranks, const PeerWatch& peers);

  // Blocks until all ranks have called it. Memory that they wrote before is then visible. Throws
  // CommError if a peer has ended or has called fail(); the message begins with `operation`.
  void wait(const char* operation);

  // Makes all present and future calls of wait() throw, on all ranks.
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
