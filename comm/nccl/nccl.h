// Communicators for GPU memory. This header names no NCCL type, so that only this folder depends on
// NCCL's headers.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace trireme::comm::nccl {

struct Library;

// The result of check_availability.
struct Availability {
  std::string problem;   // why the rank cannot use NCCL; empty if it can
  std::string gpu = {};  // PCI address such as "0000:3b:00.0", equal in all processes of the host
  std::shared_ptr<const Library> library = nullptr;
};
Availability check_availability(Device& device);

// Returns a communicator for memory of `device` that connects the ranks of `host`, a communicator
// for host memory. All ranks of `host` must call it together, each with a GPU of its own. `host` is
// used to exchange the NCCL id and to detect lost peers.
std::unique_ptr<Communicator> create_communicator(const Availability& availability,
                                                  std::unique_ptr<Communicator> host,
                                                  Device& device);

}  // namespace trireme::comm::nccl
