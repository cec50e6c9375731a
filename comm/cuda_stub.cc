// For programs built without CUDA.
#include "comm/nccl/nccl.h"
#include "comm/staged/pin.h"

namespace trireme::comm {

Buffer pin(const Buffer&, Device&) { return {}; }

nccl::Offer nccl::inspect(Device&) { return {query_cuda().problem}; }

std::unique_ptr<Communicator> nccl::create_communicator(const nccl::Offer& offer,
                                                        std::unique_ptr<Communicator>, Device&) {
  throw CommError(offer.problem);
}

}  // namespace trireme::comm
