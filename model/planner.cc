#include "model/planner.h"

#include <algorithm>
#include <numeric>

#include "core/alignment.h"

namespace trireme::model {
namespace {

bool overlap(const MemoryRequest& a, const MemoryRequest& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

MemoryPlan plan_memory(std::span<const MemoryRequest> requests) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].bytes > requests[b].bytes; });

  MemoryPlan plan{.offsets = std::vector<size_t>(requests.size())};
  std::vector<size_t> placed;  // in order of their offsets
  for (size_t request : order) {
    const size_t bytes = device_aligned(requests[request].bytes);
    size_t offset = 0;
    for (size_t other : placed) {
      if (!overlap(requests[request], requests[other])) continue;
      if (offset + bytes <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + device_aligned(requests[other].bytes));
    }
    plan.offsets[request] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [&](size_t wanted, size_t other) { return wanted < plan.offsets[other]; });
    placed.insert(after, request);
  }
  return plan;
}

}  // namespace trireme::model
