// Properties of this process, from the operating system.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::train {

// Returns the seconds since exec started the program.
double seconds_since_start();
// Returns the peak size of the resident set, in bytes.
int64_t peak_resident_bytes();
int64_t resident_bytes();
// Returns the size of the address space in use, in bytes.
int64_t address_bytes();
// Returns true if stdout is a terminal. Under mpirun, which gives every rank a pseudo-terminal,
// checks the stdout of mpirun instead.
bool stdout_is_terminal();
// Returns true if stdout is a terminal and NO_COLOR (https://no-color.org) is not set.
bool stdout_in_color();
// Returns the width of the terminal in characters. If stdout is not a terminal, returns $COLUMNS,
// or 80 if that is not set.
int terminal_columns();

}  // namespace trireme::train
