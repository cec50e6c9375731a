// What the operating system knows of this process.
#pragma once

#include <cstdint>

namespace trireme {

// Since it was started by exec.
double seconds_since_start();
// The largest resident set so far.
int64_t peak_resident_bytes();
// Whether stdout ends at a terminal: through mpirun, which gives every rank a pseudo-terminal, the
// launcher's.
bool stdout_is_terminal();
int terminal_columns();

}  // namespace trireme
