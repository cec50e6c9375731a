// The ranks of a run, talking about the memory of their devices.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace trireme::comm {

enum class Transport {
  kAuto,  // NCCL where every rank has a GPU of its own and the library is there, else MPI
  kNccl,
  kMpi,  // host memory; device memory goes through copies there
};

// A communicator for memory of `device`, whose work is queued on its streams. On the CPU that is
// world.split. All ranks call it together, with devices of the same kind; `world`, which stays the
// one for host memory, outlives it. Throws CommError when NCCL is asked for and cannot be had.
std::unique_ptr<Communicator> create_device_communicator(Communicator& world, Device& device,
                                                         Transport transport);

}  // namespace trireme::comm
