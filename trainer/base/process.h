// What the operating system knows of this process.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::train {

// Since it was started by exec.
double seconds_since_start();
// The largest resident set so far.
int64_t peak_resident_bytes();
int64_t resident_bytes();
// Whether stdout ends at a terminal: through mpirun, which gives every rank a pseudo-terminal, the
// launcher's.
bool stdout_is_terminal();
// On a terminal, and nobody has set NO_COLOR (https://no-color.org).
bool stdout_in_color();
int terminal_columns();

}  // namespace trireme::train
