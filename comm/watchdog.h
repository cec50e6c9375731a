// Ends a run in which a rank is lost, in seconds and with one paragraph that names it. A thread of
// its own compares the ledgers of all ranks: through shared memory on a host, over TCP between
// hosts, never through MPI or NCCL, which may be what is stuck. What it makes of them is in
// watchdog/diagnose.h.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace trireme::comm {

class Watchdog {
 public:
  // All ranks call it together. Watches the communicator's ledger, as that is configured, from now
  // on, and handles crashes (SIGSEGV and the like). The communicator outlives it. Throws
  // AgreedError where hosts cannot reach one another.
  explicit Watchdog(Communicator& world);
  // Just stops looking. To the others this process is still one of them.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // This rank cannot go on: the failure is told to all, every rank prints the diagnosis on which
  // was the first, and ends. `from_a_peer`: it is what another rank's end looks like from here, and
  // that one is waited for. From any thread. Never returns.
  [[noreturn]] void fail(const std::string& message, int exit_code, bool from_a_peer) noexcept;

  // Says goodbye: that this process ends from now on is no failure.
  void leave() noexcept;
  // All ranks call it together: says goodbye, waits, still watched, until all have, and stops.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::comm
