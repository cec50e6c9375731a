#include "model/planner.h"

#include <algorithm>
#include <climits>
#include <numeric>

#include "core/alignment.h"

namespace trireme::model {
namespace {

bool overlap(const MemoryRequest& a, const MemoryRequest& b) {
  return a.first <= b.last && b.first <= a.last;
}

// Requests that have been placed, in order of their offsets. They are in groups, most of which the
// search for a free place passes in one step, so that it is fast for thousands of requests.
class PlacedRequests {
 public:
  // Returns the lowest offset at which `bytes` bytes are free while the request is in use.
  size_t free_offset(const MemoryRequest& request, size_t bytes) const {
    size_t offset = 0;
    for (const Group& group : groups_) {
      if (group.is_apart(request)) continue;
      const bool whole = bytes > 0 && group.is_solid_for(request);
      for (const Placed& other : group.placed) {
        if (!overlap(request, other.request)) continue;
        if (offset + bytes <= other.begin) return offset;
        offset = std::max(offset, whole ? group.end : other.end);
        if (whole) break;
      }
    }
    return offset;
  }

  void insert(const MemoryRequest& request, size_t begin, size_t end) {
    if (groups_.empty()) groups_.emplace_back();
    const auto after = std::ranges::upper_bound(groups_, begin, {}, [](const Group& group) {
      return group.placed.empty() ? 0 : group.placed[0].begin;
    });
    const auto group = after == groups_.begin() ? after : after - 1;
    std::vector<Placed>& placed = group->placed;
    placed.insert(std::ranges::upper_bound(placed, begin, {}, &Placed::begin),
                  {request, begin, end});
    if (placed.size() > kMaxGroup) {
      Group second;
      second.placed.assign(placed.begin() + kMaxGroup / 2, placed.end());
      placed.resize(kMaxGroup / 2);
      second.summarize();
      group->summarize();
      groups_.insert(group + 1, std::move(second));
    } else {
      group->summarize();
    }
  }

 private:
  static constexpr size_t kMaxGroup = 256;

  struct Placed {
    MemoryRequest request;
    size_t begin;
    size_t end;
  };
  struct Group {
    std::vector<Placed> placed;
    int first = 0, last = 0;  // when any of them is in use
    int latest_first = 0, earliest_last = 0;
    size_t end = 0;
    bool has_gaps = false;

    bool is_apart(const MemoryRequest& request) const {
      return request.last < first || last < request.first;
    }
    // Whether the request is in use at the same time as each of them, and nothing between them is
    // free.
    bool is_solid_for(const MemoryRequest& request) const {
      return !has_gaps && request.first <= earliest_last && latest_first <= request.last;
    }
    void summarize() {
      first = earliest_last = INT_MAX;
      last = latest_first = INT_MIN;
      end = placed[0].begin;
      has_gaps = false;
      for (const Placed& each : placed) {
        first = std::min(first, each.request.first);
        last = std::max(last, each.request.last);
        latest_first = std::max(latest_first, each.request.first);
        earliest_last = std::min(earliest_last, each.request.last);
        has_gaps = has_gaps || each.begin > end;
        end = std::max(end, each.end);
      }
    }
  };

  std::vector<Group> groups_;
};

}  // namespace

MemoryPlan plan_memory(std::span<const MemoryRequest> requests) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].bytes > requests[b].bytes; });

  MemoryPlan plan{.offsets = std::vector<size_t>(requests.size())};
  PlacedRequests placed;
  for (size_t request : order) {
    const size_t bytes = device_aligned(requests[request].bytes);
    const size_t offset = placed.free_offset(requests[request], bytes);
    plan.offsets[request] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    placed.insert(requests[request], offset, offset + bytes);
  }
  return plan;
}

}  // namespace trireme::model
