// `trireme config check`.
#pragma once

#include "launch/commands.h"

namespace trireme {

void add_config_check(CLI::App& config, Command& chosen);

}  // namespace trireme
