// Reports crashes of this process in the ledger, where the other ranks see it, and on stderr.
#pragma once

#include <string>

#include "comm/ledger.h"

namespace trireme::comm {

// Installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT. A handler records the crash in
// the ledger, prints a line that begins with `description`, and a backtrace, also to the log of the
// rank (WatchOptions::log), keeps the process
// alive for `exit_delay` seconds so that other hosts are notified, and raises the signal again to
// end it. The ledger must outlive the handlers, or clear_crash_ledger() must be called before it is
// gone.
void handle_crashes(Ledger& ledger, const std::string& description, double exit_delay);
// Makes the handlers ignore the ledger from now on.
void clear_crash_ledger();

}  // namespace trireme::comm
