// Communicators for the memory of GPUs. Headers outside this folder name no NCCL type.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace trireme::comm::nccl {

struct Library;

// What a rank brings along.
struct Availability {
  std::string problem;   // why it cannot take part; empty when it can
  std::string gpu = {};  // "0000:3b:00.0", the same in every process of the host
  std::shared_ptr<const Library> library = nullptr;
};
Availability check_availability(Device& device);

// All ranks of `host`, a communicator for host memory, call it, each with a GPU of its own. They
// meet by `host`, which also tells when one of them is lost.
std::unique_ptr<Communicator> create_communicator(const Availability& availability,
                                                  std::unique_ptr<Communicator> host,
                                                  Device& device);

}  // namespace trireme::comm::nccl
