// Places values with known lifetimes in one block of memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::model {

struct MemoryRequest {
  size_t bytes = 0;
  int first = 0;  // index of the first instruction that uses it
  int last = 0;   // index of the last instruction that uses it, inclusive
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // one for each request, multiples of kDeviceAlignment
  size_t bytes = 0;             // size of the block
};

// Returns a plan in which requests with overlapping lifetimes do not overlap in memory. Places the
// largest first, each into the lowest gap that fits ("greedy by size", Pisarchyk and Lee,
// arXiv:2001.03288). Deterministic.
MemoryPlan plan_memory(std::span<const MemoryRequest> requests);

}  // namespace trireme::model
