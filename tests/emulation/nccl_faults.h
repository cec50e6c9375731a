// Lets tests inject failures into the fake of NCCL.
#pragma once

#include <nccl.h>

#include <atomic>

namespace trireme::emulation {

struct NcclFaults {
  std::atomic<bool> never_ready{false};  // host operations never complete
  std::atomic<bool> stuck{false};        // GPU operations complete only by an abort
  std::atomic<bool> no_allocator{false};
  std::atomic<int> patience_ms{120'000};         // how long an operation may wait for other ranks
  std::atomic<ncclResult_t> error{ncclSuccess};  // error that communicators report
};
NcclFaults& nccl_faults();

}  // namespace trireme::emulation
