// Communicates the contents of device memory through host memory.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace trireme::comm {

// Returns a communicator that copies data to host memory, lets `host` communicate it, and copies
// the result back, all in order on the caller's stream, so that operations can be recorded. It uses
// the device only for copies, so several ranks may share one. Memory from allocate() has a staging
// buffer of its own size, so that sums are fastest there; other memory is copied in pieces through
// a small one. All ranks must call it together; `device` must outlive the result.
std::unique_ptr<Communicator> create_staged_communicator(std::unique_ptr<Communicator> host,
                                                         Device& device);

}  // namespace trireme::comm
