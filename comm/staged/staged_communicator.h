// The ranks of a run talking about the memory of their devices by way of the host.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace trireme::comm {

// What is to be sent is copied to host memory, `host` does its work there, the result is copied
// back, all in order on the caller's stream, so that it can be recorded too. Needs nothing of the
// device but copies: several ranks may share one. Sums are fastest in memory from allocate(); other
// memory goes through a staging buffer in pieces. All ranks call it; `device` outlives it.
std::unique_ptr<Communicator> create_staged_communicator(std::unique_ptr<Communicator> host,
                                                         Device& device);

}  // namespace trireme::comm
