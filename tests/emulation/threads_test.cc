#include "threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel.h"

namespace trireme::emulation {
namespace {

// Returns the error of the kernel, or an empty string.
std::string failure_of(const Shape& shape, const std::function<void()>& thread) {
  try {
    run_kernel(shape, thread, 1);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Threads, EachRunsOnce) {
  const dim3 blocks(3, 4, 2), threads(5, 3, 2);
  std::vector<int> runs(3 * 4 * 2 * 5 * 3 * 2);
  run_kernel(
      {blocks, threads},
      [&] {
        EXPECT_TRUE(blockDim.x == 5 && blockDim.y == 3 && blockDim.z == 2);
        EXPECT_TRUE(gridDim.x == 3 && gridDim.y == 4 && gridDim.z == 2);
        const unsigned block = (blockIdx.z * 4 + blockIdx.y) * 3 + blockIdx.x;
        const unsigned thread = (threadIdx.z * 3 + threadIdx.y) * 5 + threadIdx.x;
        ++runs.at(block * 30 + thread);
      },
      1);
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

TEST(Threads, OrderDependsOnTheSeed) {
  const auto order_of = [](uint64_t seed) {
    std::vector<unsigned> order;
    run_kernel(
        {4, 64}, [&] { order.push_back(blockIdx.x * 64 + threadIdx.x); }, seed);
    return order;
  };
  EXPECT_EQ(order_of(5), order_of(5));
  std::set<std::vector<unsigned>> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) orders.insert(order_of(seed));
  EXPECT_GT(orders.size(), 15u);
}

// Every thread must see all writes before the barrier, and none after the next one.
TEST(Barrier, OrdersMemoryAccesses) {
  for (unsigned threads : {1u, 31u, 32u, 33u, 256u, 1024u}) {
    int errors = 0;
    const auto kernel = [&] {
      __shared__ unsigned values[1024];
      for (unsigned round = 0; round < 5; ++round) {
        values[threadIdx.x] = threadIdx.x + round;
        __syncthreads();
        for (unsigned i = 0; i < threads; ++i) errors += values[i] != i + round;
        __syncthreads();
      }
    };
    for (uint64_t seed = 0; seed < 5; ++seed) run_kernel({2, threads}, kernel, seed);
    EXPECT_EQ(errors, 0) << threads;
  }
}

TEST(Barrier, IsDetectedIfMissing) {
  int errors = 0;
  const auto kernel = [&] {
    __shared__ unsigned values[64];
    values[threadIdx.x] = blockIdx.x;
    errors += values[63 - threadIdx.x] != blockIdx.x;
  };
  run_kernel({2, 64}, kernel, 1);
  EXPECT_GT(errors, 0);
}

TEST(Barrier, CountsVotes) {
  int errors = 0;
  const auto kernel = [&] {
    for (int i = 0; i < 3; ++i) {
      errors += __syncthreads_count(static_cast<int>(threadIdx.x) < 10 + i) != 10 + i;
      errors += __syncthreads_or(threadIdx.x == 77) != 1;
      errors += __syncthreads_or(threadIdx.x == 100) != 0;
      errors += __syncthreads_and(threadIdx.x < 100) != 1;
      errors += __syncthreads_and(threadIdx.x != 77) != 0;
    }
  };
  run_kernel({3, 100}, kernel, 1);
  EXPECT_EQ(errors, 0);
}

TEST(Barrier, WholeWarpsMayReturnBefore) {
  const auto kernel = [] {
    if (threadIdx.x >= 32) return;
    __syncthreads();
  };
  EXPECT_EQ(failure_of({2, 96}, kernel), "");
}

TEST(Barrier, DivergenceIsReported) {
  const auto half_a_warp = [] {
    if (threadIdx.x % 32 < 16) __syncthreads();
  };
  EXPECT_TRUE(contains(failure_of({2, 64}, half_a_warp), "others have returned"));
  const auto two_barriers = [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  EXPECT_TRUE(contains(failure_of({2, 64}, two_barriers), "others at that of"));
  const auto barrier_and_warp = [] {
    if (threadIdx.x < 3) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  };
  const std::string failure = failure_of({2, 64}, barrier_and_warp);
  EXPECT_TRUE(contains(failure, "61 wait at the barrier")) << failure;
  EXPECT_TRUE(contains(failure, "lanes 0x7 of warp 0 wait at")) << failure;
  // The next kernel must run normally.
  int sum = 0;
  const auto add = [&] {
    __syncthreads();
    ++sum;
  };
  EXPECT_EQ(failure_of({2, 1024}, add), "");
  EXPECT_EQ(sum, 2048);
}

TEST(Warp, Shuffles) {
  int errors = 0;
  const auto kernel = [&] {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto expect = [&](auto got, auto wanted) { errors += got != wanted; };
    expect(__shfl_sync(~0u, lane * 10, 7), 70);
    expect(__shfl_sync(~0u, lane * 10, lane + 1, 8), (lane / 8 * 8 + (lane + 1) % 8) * 10);
    expect(__shfl_up_sync(~0u, lane, 3), lane < 3 ? lane : lane - 3);
    expect(__shfl_up_sync(~0u, lane, 3, 16), lane % 16 < 3 ? lane : lane - 3);
    expect(__shfl_down_sync(~0u, lane, 5), lane + 5 > 31 ? lane : lane + 5);
    expect(__shfl_down_sync(~0u, lane, 5, 8), lane % 8 + 5 > 7 ? lane : lane + 5);
    expect(__shfl_xor_sync(~0u, lane, 16), lane ^ 16);
    expect(__shfl_xor_sync(~0u, lane, 12, 8), (lane ^ 12) < (lane | 7) ? lane ^ 12 : lane);
    expect(__shfl_xor_sync(~0u, 0.5 * lane, 1), 0.5 * (lane ^ 1));
    float sum = static_cast<float>(lane);
    for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
    expect(sum, 496.0f);
  };
  for (uint64_t seed = 0; seed < 5; ++seed) run_kernel({2, 96}, kernel, seed);
  EXPECT_EQ(errors, 0);
}

TEST(Warp, Votes) {
  int errors = 0;
  const auto kernel = [&] {
    const unsigned lane = threadIdx.x % 32;
    errors += __ballot_sync(~0u, lane % 3 == 0) != 0x49249249;
    errors += __any_sync(~0u, lane == 31) != 1;
    errors += __any_sync(~0u, lane == 32) != 0;
    errors += __all_sync(~0u, lane < 32) != 1;
    errors += __all_sync(~0u, lane < 31) != 0;
  };
  run_kernel({2, 64}, kernel, 1);
  EXPECT_EQ(errors, 0);
}

TEST(Warp, PartialMasksSynchronizeSeparately) {
  int errors = 0;
  const auto kernel = [&] {
    const unsigned lane = threadIdx.x;
    if (lane < 8) {
      for (int i = 0; i < 3; ++i) errors += __shfl_sync(0xFFu, lane, 2) != 2;
    } else {
      errors += __shfl_sync(~0xFFu, lane, 9) != 9;
    }
    __syncwarp();
  };
  for (uint64_t seed = 0; seed < 5; ++seed) run_kernel({1, 32}, kernel, seed);
  EXPECT_EQ(errors, 0);
}

TEST(Warp, InactiveLanesGiveUndefinedValues) {
  std::vector<int> got(32);
  // Lane 20 has returned; a block of 24 threads has no lanes from 24 on.
  const auto kernel = [&] {
    const int lane = static_cast<int>(threadIdx.x);
    if (lane == 20) return;
    got[threadIdx.x] = __shfl_down_sync(~0u, lane, 4);
  };
  EXPECT_EQ(failure_of({1, 24}, kernel), "");
  EXPECT_EQ(got[0], 4);
  EXPECT_EQ(got[16], -1);
  EXPECT_EQ(got[21], -1);
}

TEST(Warp, DisagreementIsReported) {
  const auto not_in_its_mask = [] { __shfl_sync(0xFFFF, 1, 0); };
  EXPECT_TRUE(contains(failure_of({1, 32}, not_in_its_mask), "not in the mask 0xffff"));
  const auto two_masks = [] { __shfl_sync(threadIdx.x < 16 ? ~0u : ~1u, 1, 0); };
  EXPECT_TRUE(contains(failure_of({1, 32}, two_masks), "lanes of a warp meet at"));
  const auto two_places = [] {
    if (threadIdx.x < 16) {
      __syncwarp();
    } else {
      __syncwarp();
    }
  };
  EXPECT_TRUE(contains(failure_of({1, 32}, two_places), "lanes of a warp meet at"));
}

TEST(Memory, SharedMemoryIsNotCleared) {
  int clear = 0;
  const auto kernel = [&] {
    auto* values = static_cast<unsigned*>(dynamic_shared_memory());
    clear += values[threadIdx.x] != ~0u;
    values[threadIdx.x] = 0;
  };
  run_kernel({3, 128, 512}, kernel, 1);
  EXPECT_EQ(clear, 0);
}

TEST(Memory, AtomicsReturnTheOldValue) {
  int count = 0, largest = -1, smallest = 1000, slot = 0;
  std::vector<int> seen;
  float sum = 0;
  const auto kernel = [&] {
    const int i = static_cast<int>(threadIdx.x);
    seen.push_back(atomicAdd(&count, 1));
    atomicAdd(&sum, 0.5f);
    atomicMax(&largest, i);
    atomicMin(&smallest, i);
    atomicCAS(&slot, 0, 1);
  };
  run_kernel({1, 100}, kernel, 1);
  std::vector<int> wanted(100);
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(seen, wanted);
  EXPECT_EQ(sum, 50);
  EXPECT_EQ(largest, 99);
  EXPECT_EQ(smallest, 0);
  EXPECT_EQ(slot, 1);
}

}  // namespace
}  // namespace trireme::emulation
