// Measures the cost of the checks of a training step: that all numbers are finite, and that all
// ranks have the same parameters.
//   [mpirun -np N] checks_bench NETWORK [BATCH OF A RANK] [STEPS]
// Prints one JSON object. Each check is timed right after a step and compared with its time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/world.h"
#include "tests/bench/measure.h"
#include "tests/bench/zoo_config.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/run/checks.h"

namespace trireme {
namespace {

template <class F>
double seconds_of(F f) {
  const auto start = bench::Clock::now();
  f();
  return bench::seconds_since(start);
}

// The part of the update that checks whether all gradients are finite.
class FiniteCheck {
 public:
  explicit FiniteCheck(train::Step& step, const train::Config& config)
      : step_(step),
        plan_(step.backend().plan(
            ops::SumOfSquares{train::update_ranges(step.parameters(), config.run.optimizer()),
                              {{0, 1}}},
            std::array{TensorSpec{DType::kF32, {step.parameters().elements}, Layout::row_major()},
                       TensorSpec{DType::kF64, {1}, Layout::row_major()}})),
        scratch_(step.backend().device().allocate(plan_->scratch_bytes())),
        sum_(step.backend().device().allocate(sizeof(double))),
        running_(step.backend().device().allocate(step.parameters().running_stat_bytes())) {}

  void run() {
    Stream& stream = step_.stream();
    step_.backend().device().copy(running_.data(), step_.arrays().running_stats, running_.bytes(),
                                  stream);
    plan_->encode(stream, std::array<void*, 2>{step_.arrays().gradients, sum_.data()},
                  scratch_.data());
    stream.synchronize();
  }

 private:
  train::Step& step_;
  std::unique_ptr<ops::OpPlan> plan_;
  Buffer scratch_, sum_, running_;
};

int run(const std::string& network, int64_t batch, int steps) {
  comm::World world;
  comm::Communicator& communicator = world.communicator();
  const train::Config config = bench::config_of(network, batch * communicator.size());
  {
    const auto device = train::create_device(config, communicator);
    const auto backend = train::create_backend(config, *device);
    const auto dataset = train::open_data(config, data::Part::kTraining);
    const model::Graph graph = train::build_network(config, dataset->spec());
    train::Step step(config, graph, *backend, communicator);
    step.initialize();
    data::LoaderOptions options;
    options.global_batch = step.plan().global;
    options.capacity = step.plan().capacity;
    options.rank = communicator.rank();
    options.ranks = communicator.size();
    data::Loader loader(*dataset, *device, options);
    loader.start(0, 0);
    const train::Checks checks(config.run.checks(), communicator, step);
    FiniteCheck finite(step, config);
    std::vector<double> step_times, finite_part, compare_part;
    for (int i = 0; i < steps + 3; ++i) {
      const double took = seconds_of([&] {
        step.run(loader.next(), i, 0.001f);
        step.finish();
      });
      const double checking = seconds_of([&] { finite.run(); });
      all_gather(communicator, "");  // so that the comparison does not wait for a late rank
      const double comparing = seconds_of([&] { checks.compare_ranks(i, /*averaged=*/false); });
      if (i < 3) continue;  // warmup
      step_times.push_back(took);
      finite_part.push_back(checking / took);
      compare_part.push_back(comparing / took);
    }
    const auto every = static_cast<double>(config.run.checks().parameter_checksum_every_steps());
    if (communicator.rank() == 0) {
      fmt::print(
          R"({{"network":"{}","ranks":{},"batch":{},"step_ms":{:.3f},"finite_percent":{:.3f},"compare_percent":{:.4f}}})"
          "\n",
          network, communicator.size(), batch, 1e3 * bench::median(step_times),
          100 * bench::median(finite_part), 100 * bench::median(compare_part) / every);
    }
  }
  world.finalize();
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: checks_bench NETWORK [BATCH OF A RANK] [STEPS]\n");
    return 2;
  }
  const int64_t batch =
      argc > 2 ? std::atoll(argv[2]) : trireme::model::zoo_defaults(argv[1]).batch;
  return trireme::run(argv[1], batch, argc > 3 ? std::atoi(argv[3]) : 30);
}
