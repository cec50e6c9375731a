#include "model/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/alignment.h"

namespace trireme::model {
namespace {

std::vector<MemoryRequest> random_requests(std::mt19937& random) {
  std::uniform_int_distribution<int> count(1, 60), time(0, 40), length(0, 12), bytes(0, 5000);
  std::vector<MemoryRequest> requests(static_cast<size_t>(count(random)));
  for (MemoryRequest& request : requests) {
    request.bytes = static_cast<size_t>(bytes(random));
    request.first = time(random);
    request.last = request.first + length(random);
  }
  return requests;
}

// The maximum number of bytes alive at one instruction, a lower bound for any plan.
size_t live_bytes_peak(std::span<const MemoryRequest> requests) {
  int end = 0;
  for (const MemoryRequest& request : requests) end = std::max(end, request.last);
  std::vector<size_t> starts(end + 2), ends(end + 2);
  for (const MemoryRequest& request : requests) {
    starts[request.first] += device_aligned(request.bytes);
    ends[request.last + 1] += device_aligned(request.bytes);
  }
  size_t live = 0, peak = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    live += starts[i];
    live -= ends[i];
    peak = std::max(peak, live);
  }
  return peak;
}

TEST(Planner, NoTwoLiveValuesShareAByte) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const auto requests = random_requests(random);
    const MemoryPlan plan = plan_memory(requests);
    for (size_t a = 0; a < requests.size(); ++a) {
      EXPECT_EQ(plan.offsets[a] % kDeviceAlignment, 0u);
      EXPECT_LE(plan.offsets[a] + requests[a].bytes, plan.bytes);
      for (size_t b = 0; b < a; ++b) {
        const bool both_live =
            requests[a].first <= requests[b].last && requests[b].first <= requests[a].last;
        const bool apart = plan.offsets[a] + requests[a].bytes <= plan.offsets[b] ||
                           plan.offsets[b] + requests[b].bytes <= plan.offsets[a];
        ASSERT_TRUE(!both_live || apart) << "requests " << a << " and " << b;
      }
    }
    EXPECT_GE(plan.bytes, live_bytes_peak(requests));
  }
}

TEST(Planner, ReusesFreeMemory) {
  // A chain: at most two values live at once.
  std::vector<MemoryRequest> chain;
  for (int i = 0; i < 50; ++i) chain.push_back({1024, i, i + 1});
  EXPECT_EQ(plan_memory(chain).bytes, 2048u);
}

TEST(Planner, IsDeterministic) {
  std::mt19937 random(2);
  const auto requests = random_requests(random);
  EXPECT_EQ(plan_memory(requests).offsets, plan_memory(requests).offsets);
}

TEST(Planner, PeakCountsValuesAliveAtTheSameTime) {
  const MemoryRequest requests[] = {{256, 0, 2}, {512, 1, 1}, {256, 2, 5}, {2560, 6, 6}};
  EXPECT_EQ(live_bytes_peak(requests), 2560u);
  EXPECT_EQ(live_bytes_peak(std::span(requests).first(3)), 768u);
}

}  // namespace
}  // namespace trireme::model
