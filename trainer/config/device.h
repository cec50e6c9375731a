// The device of this rank, as configured.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/device_communicator.h"
#include "ops/backend.h"
#include "trainer/config/config.h"

namespace trireme::train {

// OMP_NUM_THREADS if set, else this rank's part of the cores that it may run on (affinity), each
// divided by the ranks of this host that may run there too. All ranks call it together.
int default_threads(comm::Communicator& communicator);

// Cores of this rank that its computation leaves to other threads, at least 1 and at most 64: on a
// CPU those that its threads do not take, beside a GPU all but the two that launch and communicate.
// All ranks call it together.
int spare_cores(const Config& config, comm::Communicator& communicator, const Device& device);

// A GPU for each rank where there are enough and train.device lets it, else the CPU; ranks share
// GPUs only where train.device is cuda. Throws ConfigError when the device or the precision asked
// for is not to be had. All ranks call it together.
std::unique_ptr<Device> create_device(const Config& config, comm::Communicator& communicator);
std::unique_ptr<ops::Backend> create_backend(const Config& config, Device& device);

// What the network computes in: f32 in FP32 and TF32.
DType compute_dtype(const Config& config);

// What gradients are summed through.
comm::Transport transport_of(const Config& config);

// A GPU for each rank of a host, or for as many as share them: `visible` has, in order of the
// ranks, the identities of the devices that each may use. Returns positions in those lists; -1
// where a rank sees none. The least used device comes first.
std::vector<int> assign_devices(const std::vector<std::vector<std::string>>& visible);

}  // namespace trireme::train
