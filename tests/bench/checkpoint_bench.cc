// Compares the speed of writing a checkpoint with that of `dd` for the same number of zeros,
// alternating:
//   checkpoint_bench FOLDER [MIB] [ROUNDS]
// Prints one JSON object. FOLDER should be on the disk to measure.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/measure.h"
#include "trainer/checkpoint/checkpoint_writer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using bench::Clock;
using bench::processor_seconds;
using bench::seconds_since;

// Returns convolutions of 2.25 MiB each, as in a ResNet, with at least `bytes` of values in total.
model::Parameters parameters_of(int64_t bytes) {
  constexpr int64_t kElements = 256 * 256 * 9;
  model::Parameters parameters;
  for (int64_t begin = 16; (begin - 16) * 4 < bytes; begin += kElements) {
    parameters.all.push_back({.name = fmt::format("layer{}.weight", begin),
                              .spec = {DType::kF32, {256, 256, 3, 3}, Layout::row_major()},
                              .init = {},
                              .begin = begin,
                              .end = begin + kElements});
    parameters.trained_elements = parameters.elements = begin + kElements;
  }
  return parameters;
}

double seconds_of_dd(const fs::path& file, size_t bytes) {
  const std::string command = fmt::format(
      "dd if=/dev/zero of={} bs=4M count={} iflag=count_bytes conv=fdatasync status=none",
      file.string(), bytes);
  const auto start = bench::Clock::now();
  if (std::system(command.c_str()) != 0) throw Error("dd failed: " + command);
  return bench::seconds_since(start);
}

int run(const fs::path& folder, int64_t mib, int rounds) {
  const auto device = create_cpu_device(1);
  const auto backend = ops::create_cpu_backend(*device);
  const model::Parameters parameters = parameters_of((mib << 20) / 2);
  const Buffer values = device->allocate(parameters.array_bytes());
  const Buffer velocity = device->allocate(parameters.array_bytes());
  const auto stream = device->create_stream(StreamKind::kCompute);
  for (const Buffer* array : {&values, &velocity}) {
    device->fill_zero(array->data(), array->bytes(), *stream);
  }
  train::StateArrays state_arrays(parameters, *backend, {.parameters = values.data()});
  state_arrays.add_optimizer_array(parameters, "velocity", velocity.data());
  train::CheckpointWriter writer(train::Checkpoints(folder / "checkpoints", 1), state_arrays, 600);
  std::vector<double> saves, stalls, processor, dds, ratios;
  size_t bytes = 2 * parameters.array_bytes();
  for (int round = 0; round <= rounds; ++round) {
    train::CheckpointState state;
    state.step = round;
    const double before = bench::processor_seconds();
    writer.start(state);
    const train::SaveOutcome outcome = writer.wait();
    const double used = bench::processor_seconds() - before;
    if (!outcome.error.empty()) throw Error(outcome.error);
    bytes = fs::file_size(outcome.path / "model.safetensors") +
            fs::file_size(outcome.path / "optimizer.safetensors");
    // A new file, like those of the checkpoint. The previous one is removed afterwards.
    const double dd = seconds_of_dd(folder / fmt::format("zeros-{}", round), bytes);
    fs::remove(folder / fmt::format("zeros-{}", round - 1));
    if (round == 0) continue;  // did not replace an earlier checkpoint
    saves.push_back(outcome.seconds - outcome.stall_seconds);
    stalls.push_back(outcome.stall_seconds);
    processor.push_back(used - outcome.stall_seconds);
    dds.push_back(dd);
    ratios.push_back(dd / saves.back());
  }
  fs::remove_all(folder / "checkpoints");
  fs::remove(folder / fmt::format("zeros-{}", rounds));
  const double total = static_cast<double>(bytes) / 1e6;
  fmt::print(
      R"({{"bench":"checkpoint","bytes":{},"rounds":{},"write_mb_per_second":{:.0f},)"
      R"("dd_mb_per_second":{:.0f},"write_over_dd":{:.3f},"copy_ms":{:.2f},"processor_ms":{:.2f},"ratios":[{:.3f}]}})"
      "\n",
      bytes, rounds, total / bench::median(saves), total / bench::median(dds),
      bench::median(ratios), 1e3 * bench::median(stalls), 1e3 * bench::median(processor),
      fmt::join(ratios, ","));
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("checkpoint_bench FOLDER [MIB] [ROUNDS]\n", stderr);
    return 2;
  }
  const int mib = argc > 2 ? std::atoi(argv[2]) : 512;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  return trireme::run(argv[1], mib, rounds);
}
