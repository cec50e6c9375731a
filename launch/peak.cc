#include "launch/peak.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/control.h"
#include "launch/peak_gpu.h"
#include "trainer/config/device.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 4096;      // between two readings of the clock
constexpr double kSeconds = 0.1;   // per measurement
constexpr int kAccumulators = 12;  // more than latency x ports, fewer than AVX2's 16 registers

// Executes kRounds x kAccumulators multiply-adds and returns the number of operations. The factors
// keep the values finite.
using Block = double (*)(float* sink);

__attribute__((target("avx512f,avx512bf16"))) double block_avx512_bf16(float* sink) {
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.999f), _mm512_set1_ps(0.999f));
  const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.001f), _mm512_set1_ps(0.001f));
  __m512 sums[kAccumulators];
  // All are different; otherwise the compiler would compute only one of them.
  for (int k = 0; k < kAccumulators; ++k) sums[k] = _mm512_set1_ps(static_cast<float>(k));
  for (int i = 0; i < kRounds; ++i) {
    for (auto& sum : sums) sum = _mm512_dpbf16_ps(sum, a, b);
  }
  for (const auto& sum : sums) *sink += _mm512_cvtss_f32(sum);
  return 2.0 * 32 * kRounds * kAccumulators;
}

__attribute__((target("avx512f"))) double block_avx512(float* sink) {
  const __m512 a = _mm512_set1_ps(0.999f);
  const __m512 b = _mm512_set1_ps(0.001f);
  __m512 sums[kAccumulators];
  for (auto& sum : sums) sum = b;
  for (int i = 0; i < kRounds; ++i) {
    for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, a, b);
  }
  for (const auto& sum : sums) *sink += _mm512_cvtss_f32(sum);
  return 2.0 * 16 * kRounds * kAccumulators;
}

__attribute__((target("avx2,fma"))) double block_avx2(float* sink) {
  const __m256 a = _mm256_set1_ps(0.999f);
  const __m256 b = _mm256_set1_ps(0.001f);
  __m256 sums[kAccumulators];
  for (auto& sum : sums) sum = b;
  for (int i = 0; i < kRounds; ++i) {
    for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, a, b);
  }
  for (const auto& sum : sums) *sink += _mm256_cvtss_f32(sum);
  return 2.0 * 8 * kRounds * kAccumulators;
}

double block_sse(float* sink) {
  const __m128 a = _mm_set1_ps(0.999f);
  const __m128 b = _mm_set1_ps(0.001f);
  __m128 sums[kAccumulators];
  for (auto& sum : sums) sum = b;
  for (int i = 0; i < kRounds; ++i) {
    for (auto& sum : sums) sum = _mm_add_ps(_mm_mul_ps(sum, a), b);
  }
  for (const auto& sum : sums) *sink += _mm_cvtss_f32(sum);
  return 2.0 * 4 * kRounds * kAccumulators;
}

Block best_block(DType dtype) {
  if (dtype == DType::kBF16 && __builtin_cpu_supports("avx512bf16")) return block_avx512_bf16;
  if (__builtin_cpu_supports("avx512f")) return block_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return block_avx2;
  return block_sse;
}

// Returns the best of several short windows, so that other activity on the core does not lower the
// result.
double peak_of_thread(Block block, double seconds) {
  float sink = 0;
  double best = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    const auto start = Clock::now();
    double operations = 0;
    std::chrono::duration<double> spent{0};
    while (spent.count() < 0.002) {
      operations += block(&sink);
      spent = Clock::now() - start;
    }
    best = std::max(best, operations / spent.count());
  }
  volatile float keep = sink;
  static_cast<void>(keep);
  return best;
}

// Returns the best of many short copies, for the same reason. They cycle through more memory than
// the caches hold.
double copies_of_thread(double seconds) {
  constexpr size_t kPiece = size_t{2} << 20;
  constexpr size_t kAll = 16 * kPiece;
  std::vector<char> from(kAll, 1), to(kAll, 2);
  double best = 0;
  size_t at = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    const auto start = Clock::now();
    std::memcpy(to.data() + at, from.data() + at, kPiece);
    const std::chrono::duration<double> spent = Clock::now() - start;
    best = std::max(best, 2.0 * kPiece / spent.count());
    at = (at + kPiece) % kAll;
  } while (Clock::now() < end);
  return best;
}

// Runs `work` on all threads concurrently and returns the sum of the results.
double sum_over_threads(int threads, const std::function<double()>& work) {
  std::vector<double> results(threads);
  std::vector<std::thread> workers;
  for (double& result : results) workers.emplace_back([&result, &work] { result = work(); });
  for (auto& worker : workers) worker.join();
  return std::accumulate(results.begin(), results.end(), 0.0);
}

int threads_of(const train::Config& config, comm::Communicator& communicator) {
  const int configured = config.run.train().threads();
  return configured > 0 ? configured : train::default_threads(communicator);
}

}  // namespace

train::Peaks measure_peaks(const train::Config& config, comm::Communicator& communicator,
                           ops::Backend& backend) {
  all_gather(communicator, "");  // a barrier
  const double flops = measure_rank_flops(config, communicator, backend);
  const double bytes = backend.device().kind() == DeviceKind::kCuda
                           ? measure_gpu_bandwidth(backend.device())
                           : measure_copy_bandwidth(threads_of(config, communicator), kSeconds);
  return {flops, bytes};
}

double measure_rank_flops(const train::Config& config, comm::Communicator& communicator,
                          ops::Backend& backend) {
  const DType dtype = train::compute_dtype(config);
  if (backend.device().kind() == DeviceKind::kCuda) return measure_gpu_flops(backend, dtype);
  return measure_peak_flops(threads_of(config, communicator), kSeconds, dtype);
}

double measure_peak_flops(int threads, double seconds, DType dtype) {
  return sum_over_threads(
      threads, [&, block = best_block(dtype)] { return peak_of_thread(block, seconds); });
}

double measure_copy_bandwidth(int threads, double seconds) {
  return sum_over_threads(threads, [&] { return copies_of_thread(seconds); });
}

}  // namespace trireme::cli
