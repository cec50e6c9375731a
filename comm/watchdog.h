// Ends a run within seconds once a rank is lost, with a message that names the rank at fault. A
// background thread on each rank compares the ledgers of all ranks: through shared memory on a host
// and over TCP between hosts, but never through MPI or NCCL, which may themselves be stuck. The
// rules by which it finds the rank at fault are in watchdog/diagnose.h.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace trireme::comm {

class Watchdog {
 public:
  // Starts watching, with the options of world.ledger(), and installs handlers for SIGSEGV and
  // other crashes. All ranks must call it together; `world` must outlive it. Throws AgreedError if
  // the hosts cannot connect to each other.
  explicit Watchdog(Communicator& world);
  // Stops watching. The other ranks still consider this process part of the run.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Ends the run because this rank cannot continue. All ranks are notified, print the same
  // diagnosis, which names the rank that failed first, and exit. `caused_by_peer` says that this
  // failure may be the consequence of another rank's; the watchdog then waits a while for the
  // original failure to show. Callable from any thread.
  [[noreturn]] void fail(const std::string& message, int exit_code, bool caused_by_peer) noexcept;

  // Announces that this rank leaves the run: from now on its end is not a failure.
  void leave() noexcept;
  // Calls leave(), waits until all ranks have done so, while still watching them, and then stops.
  // All ranks must call it together.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::comm
