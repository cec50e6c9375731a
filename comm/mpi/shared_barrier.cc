#include "comm/mpi/shared_barrier.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <thread>

#include "core/control_groups.h"
#include "core/error.h"

namespace trireme::comm::mpi {
namespace {

constexpr long kSliceNanoseconds = 100'000'000;  // interval at which the peers are checked
// Takes about as long as going to sleep and waking up (10 us), which bounds what spinning can waste
// if the awaited rank is not even running.
constexpr int kSpins = 400;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

uint32_t* word(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

void futex_wait(std::atomic<uint32_t>& value, uint32_t expected) {
  const timespec slice = {0, kSliceNanoseconds};
  syscall(SYS_futex, word(value), FUTEX_WAIT, expected, &slice, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& value) {
  syscall(SYS_futex, word(value), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

SharedBarrier::SharedBarrier(SharedBarrierState& state, int ranks, const PeerWatch& peers)
    : state_(state),
      ranks_(static_cast<uint32_t>(ranks)),
      peers_(peers),
      // With more ranks than cores, a spinning rank could occupy the core, or use up the CPU quota,
      // that the awaited one needs.
      spins_(std::thread::hardware_concurrency() >= ranks_ &&
                     min_cpu_quota().value_or(ranks) >= ranks
                 ? kSpins
                 : 0) {}

void SharedBarrier::wait(const char* operation) {
  throw_if_failed(operation);
  const uint32_t epoch = state_.epoch.load();
  if (state_.arrived.fetch_add(1) + 1 == ranks_) {
    state_.arrived.store(0);
    state_.epoch.store(epoch + 1);
    // A rank that increments `sleepers` after this check sees the new epoch and does not sleep.
    if (state_.sleepers.load() != 0) futex_wake_all(state_.epoch);
    return;
  }
  for (int i = 0; i < spins_; ++i) {
    if (state_.epoch.load(std::memory_order_acquire) != epoch) return;
    pause();
  }
  state_.sleepers.fetch_add(1);
  try {
    sleep(epoch, operation);
  } catch (...) {
    state_.sleepers.fetch_sub(1);
    throw;
  }
  state_.sleepers.fetch_sub(1);
}

void SharedBarrier::sleep(uint32_t epoch, const char* operation) {
  while (state_.epoch.load() == epoch) {
    throw_if_failed(operation);
    futex_wait(state_.epoch, epoch);
    const Peer* ended = state_.epoch.load() == epoch ? peers_.find_ended() : nullptr;
    // The peer may have arrived and then ended since the epoch was read.
    if (ended && state_.epoch.load() == epoch) {
      throw_if_failed(operation);  // the reason why the peer has ended
      throw CommError(fmt::format("{}: rank {} (pid {}) of this host has ended", operation,
                                  ended->rank, ended->pid));
    }
  }
}

void SharedBarrier::throw_if_failed(const char* operation) const {
  if (!failed()) return;
  throw CommError(fmt::format("{}: a rank of this host has failed", operation));
}

void SharedBarrier::fail() noexcept {
  state_.failed.store(1);
  futex_wake_all(state_.epoch);
}

}  // namespace trireme::comm::mpi
