// What a run ran on, for whoever looks at its results later: RUN/environment.json.
#pragma once

#include <filesystem>
#include <string>

#include "comm/communicator.h"
#include "core/device.h"

namespace trireme::train {

// Command, version, start, hosts with their ranks, processors, memory and GPUs, libraries. All
// ranks call it together; rank 0 gets the JSON, the others nothing.
std::string describe_environment(comm::Communicator& communicator, const Device& device);

}  // namespace trireme::train
