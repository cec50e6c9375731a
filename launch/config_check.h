// `trireme config check`: checks whether a configuration can be trained on this machine.
#pragma once

#include "launch/commands.h"

namespace trireme::cli {

void add_config_check(ArgumentParser config, Command& chosen);

}  // namespace trireme::cli
