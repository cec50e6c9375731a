// RUN/environment.json: the machines and library versions that a run used.
#pragma once

#include <filesystem>
#include <string>

#include "comm/communicator.h"
#include "core/device.h"

namespace trireme::train {

// Returns as JSON the command line, the version of Trireme, the start time, the hosts with their
// ranks, CPUs, memory and GPUs, and the library versions. A collective: all ranks must call it.
// Returns an empty string on ranks other than 0.
std::string describe_environment(comm::Communicator& communicator, const Device& device);

}  // namespace trireme::train
