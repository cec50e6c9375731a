// Measures the speed of the loader without training, optionally compared with memcpy.
//
//   loader_bench DATA [--threads N] [--batch N] [--epochs N] [--copy]
//
// DATA is the contents of `data { }` in a configuration. The first epoch is not counted. With
// --copy, loading 2 GB alternates with copying the same amount by the same number of threads, from
// memory of the size of the samples into a ring of batches. Prints one JSON object.
#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "data/data.pb.h"
#include "data/loader.h"
#include "data/mix.h"
#include "tests/bench/measure.h"

namespace trireme::bench {
namespace {

constexpr auto kUntilTheRingIsFull = std::chrono::milliseconds(100);

struct Options {
  DataConfig data;
  int threads = 2;
  int64_t batch = 64;
  int epochs = 5;
  bool copy = false;
};

Options parse(int count, char** arguments) {
  Options options;
  if (count < 2) throw Error("usage: loader_bench DATA [--threads N] [--batch N] [--epochs N]");
  if (!google::protobuf::TextFormat::ParseFromString(arguments[1], &options.data)) {
    throw Error(fmt::format("not a data configuration: {}", arguments[1]));
  }
  for (int i = 2; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--copy") {
      options.copy = true;
      continue;
    }
    if (i + 1 == count) throw Error("unknown option or missing value: " + name);
    const int value = std::stoi(arguments[++i]);
    if (name == "--threads") {
      options.threads = value;
    } else if (name == "--batch") {
      options.batch = value;
    } else if (name == "--epochs") {
      options.epochs = value;
    } else {
      throw Error("unknown option: " + name);
    }
  }
  return options;
}

// Copies samples in random order into a ring of batches, divided among threads.
class Copies {
 public:
  Copies(Device& device, int64_t samples, size_t bytes, const Options& options)
      : options_(options),
        samples_(samples),
        bytes_(bytes),
        from_(device.allocate_host(static_cast<size_t>(samples) * bytes)) {
    std::memset(from_.data(), 3, from_.bytes());
    const size_t rows = static_cast<size_t>(options.data.prefetch() * options.batch);
    for (int thread = 0; thread < options.threads; ++thread) {
      rings_.push_back(device.allocate_host(rows / static_cast<size_t>(options.threads) * bytes));
      std::memset(rings_.back().data(), 5, rings_.back().bytes());
    }
  }
  // Returns the seconds for copying all samples `epochs` times.
  double seconds(int64_t epochs) {
    const auto began = Clock::now();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < options_.threads; ++thread) {
      threads.emplace_back([&, thread] { copy(epochs, thread); });
    }
    for (std::thread& thread : threads) thread.join();
    return seconds_since(began);
  }

 private:
  void copy(int64_t epochs, int thread) {
    const Buffer& ring = rings_[static_cast<size_t>(thread)];
    size_t to = 0;
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      const data::Order order({}, 1, epoch, samples_);
      for (int64_t i = thread; i < samples_; i += options_.threads) {
        std::memcpy(ring.data() + to, from_.data() + static_cast<size_t>(order(i)) * bytes_,
                    bytes_);
        to = to + 2 * bytes_ > ring.bytes() ? 0 : to + bytes_;
      }
    }
  }

  const Options& options_;
  int64_t samples_;
  size_t bytes_;
  Buffer from_;
  std::vector<Buffer> rings_;
};

void run(const Options& options) {
  const auto device = create_cpu_device(1);
  const auto dataset =
      data::open_dataset(options.data, data::Part::kTraining, {.seed = 1, .progress = {}});
  data::LoaderOptions loading;
  loading.seed = 1;
  loading.order = data::order_options(options.data, *dataset);
  loading.global_batch = loading.capacity = options.batch;
  loading.threads = options.threads;
  loading.depth = options.data.prefetch();
  std::unique_ptr<data::Mix> mix;
  if (options.data.has_mix()) {
    mix = std::make_unique<data::Mix>(options.data.mix(), loading.seed, dataset->spec());
    loading.mix = mix.get();
  }
  data::Loader loader(*dataset, *device, loading);
  const auto epoch = [&] {
    while (!loader.next().last_of_epoch) {
    }
  };
  const auto load = [&](int64_t epochs) {
    const auto began = Clock::now();
    for (int64_t i = 0; i < epochs; ++i) epoch();
    return seconds_since(began);
  };
  loader.start(0, 0);
  epoch();
  const data::SampleSpec& spec = dataset->spec();
  const size_t bytes = spec.input.bytes();
  const int64_t size = dataset->size() * static_cast<int64_t>(bytes);
  std::unique_ptr<Copies> copies;
  if (options.copy) copies = std::make_unique<Copies>(*device, dataset->size(), bytes, options);
  const int64_t epochs_a_turn = copies ? std::max<int64_t>(1, 2'000'000'000 / size) : 1;
  std::vector<double> ratios;
  double seconds = 0;
  double processor = 0;
  double copying = 0;
  for (int i = 0; i < options.epochs; ++i) {
    // Discard batches that were loaded ahead, whose time was not measured.
    if (copies) loader.start(i + 1, 0);
    const double before = processor_seconds();
    const double loaded = load(epochs_a_turn);
    processor += processor_seconds() - before;
    seconds += loaded;
    if (!copies) continue;
    std::this_thread::sleep_for(kUntilTheRingIsFull);
    const double copied = copies->seconds(epochs_a_turn);
    copying += copied;
    ratios.push_back(copied / loaded);
  }
  const double samples = static_cast<double>(dataset->size() * epochs_a_turn * options.epochs);
  const double megabytes = samples * static_cast<double>(bytes) / 1e6;
  std::string text = fmt::format(
      R"({{"samples": {}, "sample": "{}", "threads": {}, "batch": {}, "samples_per_second": {:.1f}, )"
      R"("mb_per_second": {:.1f}, "processor_us_per_sample": {:.2f})",
      dataset->size(), spec.input.to_string(), options.threads, options.batch, samples / seconds,
      megabytes / seconds, 1e6 * processor / samples);
  if (copies) {
    text += fmt::format(R"(, "copy_mb_per_second": {:.1f}, "of_copy": {:.4f})", megabytes / copying,
                        median(ratios));
  }
  fmt::print("{}}}\n", text);
}

}  // namespace
}  // namespace trireme::bench

int main(int count, char** arguments) {
  try {
    trireme::bench::run(trireme::bench::parse(count, arguments));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "loader_bench: {}\n", error.what());
    return 1;
  }
}
