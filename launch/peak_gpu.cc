#include "launch/peak_gpu.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <vector>

#include "core/random.h"

namespace trireme::cli {
namespace {

constexpr int kRepeats = 10;

// Returns the shortest time of several runs of the work, after a warm-up run.
double best_seconds(Device& device, Stream& stream, const std::function<void()>& work) {
  const auto begin = device.create_event(EventKind::kTimed);
  const auto end = device.create_event(EventKind::kTimed);
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i <= kRepeats; ++i) {
    stream.record(*begin);
    work();
    stream.record(*end);
    end->synchronize();
    if (i > 0) best = std::min(best, device.seconds_between(*begin, *end));
  }
  return best;
}

// Returns random numbers that are in [-1, 1) in every 16-bit and 32-bit format. Realistic numbers
// matter because the power draw, and so the clock rate, depends on them.
Buffer noise(Device& device, Stream& stream, size_t bytes) {
  std::vector<uint32_t> words(1 << 18);
  const Random random(1, RandomPurpose::kSynthetic);
  for (size_t i = 0; i < words.size(); ++i) words[i] = random.bits(i) & 0xBF7FBF7F;
  Buffer buffer = device.allocate(bytes);
  const size_t piece = words.size() * sizeof(uint32_t);
  for (size_t at = 0; at < bytes; at += piece) {
    device.copy(buffer.data() + at, words.data(), std::min(piece, bytes - at), stream);
  }
  stream.synchronize();
  return buffer;
}

double matrix_flops(ops::Backend& backend, DType dtype, int64_t n, double& seconds) {
  Device& device = backend.device();
  const auto stream = device.create_stream(StreamKind::kCompute);
  const TensorSpec matrix{dtype, {n, n}, Layout::row_major()};
  const std::array<TensorSpec, ops::DenseForward::kArgs> specs{matrix, matrix, ops::absent(),
                                                               matrix, ops::absent()};
  const auto plan = backend.plan(ops::DenseForward{}, specs);
  const Buffer x = noise(device, *stream, matrix.bytes());
  const Buffer weight = noise(device, *stream, matrix.bytes());
  const Buffer y = device.allocate(matrix.bytes());
  const Buffer scratch = device.allocate(plan->scratch_bytes());
  const std::array<void*, ops::DenseForward::kArgs> args{x.data(), weight.data(), nullptr, y.data(),
                                                         nullptr};
  seconds = best_seconds(device, *stream, [&] { plan->encode(*stream, args, scratch.data()); });
  return flops(ops::DenseForward{}, specs) / seconds;
}

}  // namespace

double measure_gpu_flops(ops::Backend& backend, DType dtype) {
  constexpr int64_t kLargest = 8192;
  constexpr double kLong = 1e-3;
  double best = 0;
  double seconds = 0;
  for (int64_t n = 256; n <= kLargest && seconds < kLong; n *= 2) {
    best = std::max(best, matrix_flops(backend, dtype, n, seconds));
  }
  return best;
}

double measure_gpu_bandwidth(Device& device) {
  constexpr size_t kBytes = size_t{512} << 20;  // ten times the largest cache
  const auto stream = device.create_stream(StreamKind::kCompute);
  const Buffer from = device.allocate(kBytes);
  const Buffer to = device.allocate(kBytes);
  device.fill_zero(from.data(), kBytes, *stream);
  const double seconds =
      best_seconds(device, *stream, [&] { device.copy(to.data(), from.data(), kBytes, *stream); });
  return 2 * static_cast<double>(kBytes) / seconds;
}

}  // namespace trireme::cli
