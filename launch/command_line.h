// The command line: which command it names, with its options.
#pragma once

#include "launch/commands.h"

namespace trireme::cli {

// What the command line asks for. Help and mistakes are commands as well, so that one rank prints
// them.
Command parse_command_line(int argc, char** argv);

}  // namespace trireme::cli
