// Positions of an epoch's order a second, on one core, one after the other as a loader asks.
#include <benchmark/benchmark.h>

#include "data/sampler.h"

namespace trireme {
namespace {

void measure(benchmark::State& state, const data::OrderOptions& options) {
  const int64_t size = state.range(0);
  const data::Order order(options, 1, 3, size);
  int64_t position = size / 3;
  for (auto _ : state) {
    benchmark::DoNotOptimize(order(position));
    if (++position == size) position = 0;
  }
  state.SetItemsProcessed(state.iterations());
}

void whole(benchmark::State& state) { measure(state, {}); }
void windows(benchmark::State& state) { measure(state, {.block = 256, .window = 16384}); }

// Of ImageNet; of 10^9; just above a power of two, where half of what a permutation walks through
// lies outside.
BENCHMARK(whole)->Arg(1281167)->Arg(1'000'000'000)->Arg((int64_t{1} << 30) + 1);
BENCHMARK(windows)->Arg(1281167)->Arg(1'000'000'000)->Arg((int64_t{1} << 30) + 1);

}  // namespace
}  // namespace trireme

BENCHMARK_MAIN();
