// Parses the command line.
#pragma once

#include "launch/commands.h"

namespace trireme::cli {

// Returns the command that the command line selects. Requests for help and usage errors also result
// in commands, so that only one rank prints them.
Command parse_command_line(int argc, char** argv);

}  // namespace trireme::cli
