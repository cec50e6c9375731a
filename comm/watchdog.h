// Ends a run in which a rank is lost, in seconds and with one paragraph that names it. A thread of
// its own compares the ledgers of all ranks: through shared memory on a host, over TCP between
// hosts, never through MPI or NCCL, which may be what is stuck.
//
// A verdict is one line, printed on stderr by each survivor and appended to its log:
//   trireme: rank 0 (HOST, pid 811): verdict: rank 3 (host HOST, pid 812) ...
// What follows "verdict: " is the same on all of them. A warning says "warning: " instead.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace trireme {

class Watchdog {
 public:
  // All ranks call it together. Watches the communicator's ledger, as that is configured, from now
  // on. The communicator outlives it.
  explicit Watchdog(Communicator& world);
  // Says goodbye: that this process ends from now on is no failure.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // This rank cannot go on: the failure is told to all, every rank prints the verdict on which was
  // the first, and ends. `from_a_peer`: it is what another rank's end looks like from here, and
  // that one is waited for. Never returns.
  [[noreturn]] void fail(const std::string& message, int exit_code, bool from_a_peer) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
