// Creates the communicator for device memory.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace trireme::comm {

enum class Transport {
  kAuto,  // NCCL if every rank has a GPU of its own and the library is installed, otherwise MPI
  kNccl,
  kMpi,  // through host memory, with copies from and to the device
};

// Returns why NCCL cannot connect the devices of the ranks: "ranks 0 and 1 share GPU ..."; empty if
// it can. Equal on all ranks, which must call it together.
std::string why_not_nccl(Communicator& world, Device& device);

// Returns a communicator for memory of `device`, which queues its operations on streams of that
// device. On the CPU it is split from `world`. All ranks must call it together, with devices of the
// same kind. `world` must outlive the result and remains the communicator for host memory. Throws
// CommError if `transport` is kNccl and NCCL cannot be used.
std::unique_ptr<Communicator> create_device_communicator(Communicator& world, Device& device,
                                                         Transport transport);

}  // namespace trireme::comm
