#include "model/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <utility>
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

// The search passes groups of requests in one step. Its plan is that of a search which does not.
TEST(Planner, PlacesThousandsOfRequestsAsOneByOne) {
  std::mt19937 random(3);
  for (const int saved : {0, 1200}) {
    std::vector<MemoryRequest> requests;
    for (int i = 0; i < saved; ++i) requests.push_back({512, i, 2 * saved - i});
    std::uniform_int_distribution<int> time(0, 2 * saved + 500), length(0, 30), bytes(0, 9);
    for (int i = 0; i < 1500; ++i) {
      const int first = time(random);
      requests.push_back({static_cast<size_t>(bytes(random)) * 256, first, first + length(random)});
    }
    std::vector<size_t> order(requests.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return requests[i].bytes; });
    const MemoryPlan plan = plan_memory(requests);
    for (size_t n = 0; n < order.size(); ++n) {
      const MemoryRequest& placed = requests[order[n]];
      std::vector<std::pair<size_t, size_t>> in_use;
      for (size_t m = 0; m < n; ++m) {
        const MemoryRequest& other = requests[order[m]];
        if (placed.first > other.last || other.first > placed.last) continue;
        const size_t begin = plan.offsets[order[m]];
        in_use.emplace_back(begin, begin + device_aligned(other.bytes));
      }
      std::ranges::sort(in_use);
      size_t lowest = 0;
      for (const auto& [begin, end] : in_use) {
        if (lowest + device_aligned(placed.bytes) <= begin) break;
        lowest = std::max(lowest, end);
      }
      ASSERT_EQ(plan.offsets[order[n]], lowest) << "request " << n;
    }
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
