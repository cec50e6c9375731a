#include "launch/peak.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 4096;      // between two looks at the clock
constexpr int kAccumulators = 12;  // more than latency x ports, fewer than AVX2's 16 registers

// One block of kRounds x kAccumulators multiply-adds; returns its operations. The factors keep the
// values finite.
using Block = double (*)(float* sink);

__attribute__((target("avx512f,avx512bf16"))) double block_avx512_bf16(float* sink) {
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.999f), _mm512_set1_ps(0.999f));
  const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.001f), _mm512_set1_ps(0.001f));
  __m512 sums[kAccumulators];
  // All different, or the compiler would compute one for all.
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

// The best of several short windows: a floor must not be raised by whatever else the core did
// meanwhile.
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

}  // namespace

double measure_peak_flops(int threads, double seconds, DType dtype) {
  const Block block = best_block(dtype);
  std::vector<double> peaks(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  for (double& peak : peaks) {
    workers.emplace_back([&peak, block, seconds] { peak = peak_of_thread(block, seconds); });
  }
  for (auto& worker : workers) worker.join();
  double total = 0;
  for (double peak : peaks) total += peak;
  return total;
}

}  // namespace trireme
