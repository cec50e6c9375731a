// Times the network of a run as `trireme predict` runs it, without reading images.
//   predict_bench RUN BATCH THREADS [SECONDS] [unfolded]     unfolded: batch norms are not folded
// Prints one line of JSON: milliseconds per batch (median), processor milliseconds per batch
// (mean), samples/s.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "core/error.h"
#include "core/openmp.h"
#include "core/random.h"
#include "trainer/config/device.h"
#include "trainer/infer/predictor.h"
#include "trainer/infer/trained_model.h"
#include "trainer/report/sample_info.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::byte> random_batch(const TensorSpec& input, int64_t rows) {
  const Random random(1, RandomPurpose::kSynthetic);
  std::vector<std::byte> bytes(static_cast<size_t>(rows) * input.bytes());
  if (input.dtype == DType::kF32) {
    for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
      const float number = random.normal_at(i);
      std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
    }
  } else {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(random.bits(i) & 0xFF);
  }
  return bytes;
}

int run(const std::string& path, int64_t rows, int threads, double seconds,
        train::BatchNormMode norms) {
  const std::vector<std::string> assignments = {fmt::format("train.threads={}", threads)};
  const train::TrainedRun trained =
      train::find_trained_run(path, assignments, train::warn_on_stderr);
  const train::Config& config = trained.config;
  const train::SampleInfo facts = train::samples_of(trained);
  const auto alone = comm::create_local_communicator();
  const auto device = train::create_device(config, *alone);
  const auto backend = train::create_backend(config, *device);
  const train::TrainedModel model(config, *backend, facts.spec, trained.checkpoint, rows, norms);
  train::Predictor predictor(model, *backend, rows);
  const std::vector<std::byte> batch = random_batch(facts.spec.input, rows);
  for (int i = 0; i < 3; ++i) predictor.run(batch.data(), rows);
  std::vector<double> times;
  const auto began = Clock::now();
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const std::clock_t processor = std::clock();
  while (since(began) < seconds || times.size() < 3) {
    const auto start = Clock::now();
    predictor.run(batch.data(), rows);
    times.push_back(since(start));
  }
  const double busy = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC /
                      static_cast<double>(times.size());
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  const double median = times[times.size() / 2];
  fmt::print(
      "{{\"batch\": {}, \"threads\": {}, \"ms\": {:.4f}, \"processor_ms\": {:.4f}, "
      "\"samples_per_second\": {:.2f}}}\n",
      rows, threads, 1e3 * median, 1e3 * busy, static_cast<double>(rows) / median);
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::limit_openmp_spinning(argv);
  if (argc < 4) {
    std::fputs("usage: predict_bench RUN BATCH THREADS [SECONDS] [unfolded]\n", stderr);
    return 2;
  }
  try {
    const bool unfolded = argc > 5 && std::strcmp(argv[5], "unfolded") == 0;
    return trireme::run(argv[1], std::atoll(argv[2]), std::atoi(argv[3]),
                        argc > 4 ? std::atof(argv[4]) : 2,
                        unfolded ? trireme::train::BatchNormMode::kUnfolded
                                 : trireme::train::BatchNormMode::kFolded);
  } catch (const std::exception& error) {
    fmt::print(stderr, "predict_bench: {}\n", error.what());
    return 1;
  }
}
