// The device of this rank, as configured.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "ops/backend.h"
#include "trainer/config.h"

namespace trireme {

// OMP_NUM_THREADS if set, else this rank's part of the cores that it may run on (affinity), each
// divided by the ranks of this host that may run there too. All ranks call it together.
int default_threads(Communicator& communicator);

// Throws ConfigError when the device or the precision asked for is not to be had. All ranks call it
// together.
std::unique_ptr<Device> create_device(const Config& config, Communicator& communicator);
std::unique_ptr<Backend> create_backend(Device& device);

}  // namespace trireme
