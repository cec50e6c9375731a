// A crash leaves a word: in the ledger, where the other ranks find it, and on stderr.
#pragma once

#include <string>

#include "comm/ledger.h"

namespace trireme::comm {

// Handles SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT from now on: notes the crash in the ledger,
// prints a line that begins with `who` and a backtrace, stays for `linger` seconds so that other
// hosts hear of it, and ends by the same signal. The page is that of the ledger at each time.
void handle_crashes(Ledger& ledger, const std::string& who, double linger);
// From now on a crash touches no ledger.
void forget_ledger();

}  // namespace trireme::comm
