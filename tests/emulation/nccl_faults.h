// What tests can make the fake of NCCL do.
#pragma once

#include <nccl.h>

#include <atomic>

namespace trireme::emulation {

struct NcclFaults {
  std::atomic<bool> never_ready{false};  // what is begun on the host never ends
  std::atomic<bool> stuck{false};        // what is begun on the GPU ends only by an abort
  std::atomic<bool> no_allocator{false};
  std::atomic<ncclResult_t> error{ncclSuccess};  // that communicators report
};
NcclFaults& nccl_faults();

}  // namespace trireme::emulation
