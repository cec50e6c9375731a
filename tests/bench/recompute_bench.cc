// Compares the time that recomputation adds to a training step with the prediction of `trireme
// inspect`, the sum of the measured times of the operations that run again. Steps with and without
// memory.limit_bytes take turns, so that other programs on the host slow both down. Where memory
// lies changes the ratio from process to process by a tenth: take the median of several.
//   recompute_bench CONFIG LIMIT_BYTES [ROUNDS] [STEPS OF A ROUND]
// Prints one JSON object with medians over all steps and rounds. The ratio is that of the added to
// the predicted time of a round, with a 95% confidence interval from 2,000 bootstrap samples.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"
#include "data/loader.h"
#include "tests/bench/measure.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/step/layer_costs.h"
#include "trainer/step/step.h"
#include "trainer/step/training_program.h"

namespace trireme {
namespace {

class Stepper {
 public:
  Stepper(const train::Config& config, const model::Graph& graph, const data::Dataset& dataset,
          ops::Backend& backend, comm::Communicator& communicator)
      : graph_(graph),
        step_(config, graph, backend, communicator),
        loader_(dataset, backend.device(), loading(step_.plan())) {
    step_.initialize();
    loader_.start(0, 0);
    for (int i = 0; i < 3; ++i) run();  // warmup
  }

  double run() {
    const data::Batch batch = loader_.next();
    const auto start = bench::Clock::now();
    step_.run(batch, done_++, 0.001f);
    step_.finish();
    return bench::seconds_since(start);
  }

  // Returns the predicted seconds of a step for operations that run again.
  double predict() {
    const std::vector<double> seconds = train::measure_instructions(
        graph_, step_.program(), step_.parameters(), step_.backend(), step_.plan().micro);
    const auto instructions = step_.program().instructions();
    double total = 0;
    for (size_t i = 0; i < seconds.size(); ++i) {
      if (instructions[i].repeats()) total += seconds[i];
    }
    return total * static_cast<double>(step_.plan().passes);
  }

  const model::Program& program() const { return step_.program(); }
  size_t bytes() const { return step_.memory_bytes().total(); }

 private:
  static data::LoaderOptions loading(const train::BatchPlan& plan) {
    data::LoaderOptions options;
    options.global_batch = plan.global;
    options.capacity = plan.capacity;
    return options;
  }

  const model::Graph& graph_;
  train::Step step_;
  data::Loader loader_;
  int64_t done_ = 0;
};

struct Interval {
  double low = 0, high = 0;
};

Interval confidence_of_median(const std::vector<double>& values) {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<size_t> any(0, values.size() - 1);
  std::vector<double> medians, sample(values.size());
  for (int i = 0; i < 2000; ++i) {
    for (double& each : sample) each = values[any(random)];
    medians.push_back(bench::median(sample));
  }
  std::ranges::sort(medians);
  return {medians[50], medians[1949]};
}

int run(const std::string& file, const std::string& limit, int rounds, int steps) {
  const std::vector<std::string> assignment{"memory.limit_bytes=" + limit};
  const train::Config unlimited = train::load_config(file, {});
  const train::Config limited = train::load_config(file, assignment);
  const auto communicator = comm::create_local_communicator();
  const auto device = train::create_device(unlimited, *communicator);
  const auto backend = train::create_backend(unlimited, *device);
  const auto dataset = train::open_data(unlimited, data::Part::kTraining);
  const model::Graph graph = train::build_network(unlimited, dataset->spec());
  Stepper plain(unlimited, graph, *dataset, *backend, *communicator);
  Stepper recomputing(limited, graph, *dataset, *backend, *communicator);

  if (train::repeated_operations(recomputing.program()) == 0) {
    throw Error("with this limit, no operation runs again");
  }

  std::vector<double> plain_ms, added_ms, predicted_ms, ratios;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> added;
    const double before = recomputing.predict();
    for (int i = 0; i < steps; ++i) {
      double with = i % 2 > 0 ? recomputing.run() : 0;
      const double without = plain.run();
      if (i % 2 == 0) with = recomputing.run();
      added.push_back(with - without);
      plain_ms.push_back(1e3 * without);
      added_ms.push_back(1e3 * added.back());
    }
    const double predicted = (before + recomputing.predict()) / 2;
    predicted_ms.push_back(1e3 * predicted);
    ratios.push_back(bench::median(added) / predicted);
  }
  const Interval interval = confidence_of_median(ratios);
  fmt::print(
      R"({{"plain_bytes":{},"limited_bytes":{},"plain_ms":{:.2f},"added_ms":{:.2f},"predicted_ms":{:.2f},"ratio":{:.3f},"ratio_low":{:.3f},"ratio_high":{:.3f},"rounds":{}}})"
      "\n",
      plain.bytes(), recomputing.bytes(), bench::median(plain_ms), bench::median(added_ms),
      bench::median(predicted_ms), bench::median(ratios), interval.low, interval.high, rounds);
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: recompute_bench CONFIG LIMIT_BYTES [ROUNDS] [STEPS OF A ROUND]\n");
    return 2;
  }
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 20, steps = argc > 4 ? std::atoi(argv[4]) : 6;
  if (rounds < 1 || steps < 1) {
    fmt::print(stderr, "recompute_bench: at least one round of one step\n");
    return 2;
  }
  try {
    return trireme::run(argv[1], argv[2], rounds, steps);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "recompute_bench: {}\n", error.what());
    return 1;
  }
}
