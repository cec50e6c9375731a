// Measures how many positions per second Order computes on one core, in sequence as in a loader.
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

void full_shuffle(benchmark::State& state) { measure(state, {}); }
void windows(benchmark::State& state) { measure(state, {.block = 256, .window = 16384}); }

// ImageNet, 10^9 samples, and just above a power of two, where cycle walking skips half of the
// values.
BENCHMARK(full_shuffle)->Arg(1281167)->Arg(1'000'000'000)->Arg((int64_t{1} << 30) + 1);
BENCHMARK(windows)->Arg(1281167)->Arg(1'000'000'000)->Arg((int64_t{1} << 30) + 1);

}  // namespace
}  // namespace trireme

BENCHMARK_MAIN();
