// Places values that live for a while in one stretch of memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::model {

struct MemoryRequest {
  size_t bytes = 0;
  int first = 0;  // the instruction that writes it first
  int last = 0;   // the last one that touches it, inclusive
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // one a request, multiples of kDeviceAlignment
  size_t bytes = 0;             // of the whole
};

// No two requests whose lives overlap share a byte. Largest first, each into the lowest gap that
// fits (Pisarchyk and Lee, arXiv:2001.03288, "greedy by size"). A pure function.
MemoryPlan plan_memory(std::span<const MemoryRequest> requests);

}  // namespace trireme::model
