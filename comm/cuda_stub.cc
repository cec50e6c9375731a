// Definitions for programs built without CUDA.
#include "comm/nccl/nccl.h"
#include "comm/staged/pin.h"

namespace trireme::comm {

Buffer pin(const Buffer&, Device&) { return {}; }

nccl::Availability nccl::check_availability(Device&) { return {query_cuda().problem}; }

std::unique_ptr<Communicator> nccl::create_communicator(const nccl::Availability& availability,
                                                        std::unique_ptr<Communicator>, Device&) {
  throw CommError(availability.problem);
}

}  // namespace trireme::comm
