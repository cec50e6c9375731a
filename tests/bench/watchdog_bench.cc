// Measures the cost of the watchdog: blocks of steps with and without it, alternating.
//   mpirun -np N watchdog_bench [NETWORK] [BATCH OF A RANK] [PAIRS] [SECONDS OF A BLOCK]
// Prints one JSON object: the ratio of the times with and without the watchdog on rank 0, as the
// median over pairs; the processor time of the watchdog's thread as a fraction of a core; and the
// nanoseconds for recording a collective operation in the ledger.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/control.h"
#include "comm/mpi/session.h"
#include "comm/watchdog.h"
#include "data/loader.h"
#include "tests/bench/measure.h"
#include "tests/bench/zoo_config.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/step/step.h"

namespace trireme {
namespace {

using bench::Clock;
using bench::processor_seconds;
using bench::seconds_since;

// Runs steps on a batch of zeros.
class Stepper {
 public:
  Stepper(const train::Config& config, comm::Communicator& communicator)
      : communicator_(communicator),
        device_(train::create_device(config, communicator)),
        backend_(train::create_backend(config, *device_)),
        samples_(train::open_data(config, data::Part::kTraining)->spec()),
        graph_(train::build_network(config, samples_)),
        step_(config, graph_, *backend_, communicator),
        inputs_(device_->allocate_host(capacity() * samples_.input.bytes())),
        targets_(device_->allocate_host(capacity() * samples_.target.bytes())) {
    step_.initialize();
    batch_ = {.inputs = inputs_.data(),
              .targets = targets_.data(),
              .rows = step_.plan().capacity,
              .first_row = communicator.rank() * step_.plan().capacity,
              .global_rows = step_.plan().global};
    run(20);
  }

  double run(int64_t steps) {
    comm::Ledger& ledger = communicator_.ledger();
    all_gather(communicator_, "");
    const auto start = bench::Clock::now();
    for (int64_t i = 0; i < steps; ++i) {
      ledger.enter(comm::Phase::kData, done_);
      if (const auto result = step_.run(batch_, done_++, 0.001f)) {
        ledger.step_done(result->timings.total(), result->timings.communication);
      }
    }
    step_.finish();
    return bench::seconds_since(start);
  }

 private:
  size_t capacity() const { return static_cast<size_t>(step_.plan().capacity); }

  comm::Communicator& communicator_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ops::Backend> backend_;
  data::SampleSpec samples_;
  model::Graph graph_;
  train::Step step_;
  Buffer inputs_, targets_;
  data::Batch batch_;
  int64_t done_ = 0;
};

double watched(Stepper& stepper, comm::Communicator& communicator, int64_t steps) {
  comm::Watchdog watchdog(communicator);
  const double seconds = stepper.run(steps);
  watchdog.finish();
  return seconds;
}

// Returns the processor time of the watchdog's thread, as a fraction of a core, in an idle process.
double fraction_of_a_core(comm::Communicator& communicator) {
  comm::Watchdog watchdog(communicator);
  all_gather(communicator, "");
  const double before = bench::processor_seconds();
  const auto start = bench::Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(4));
  const double part = (bench::processor_seconds() - before) / bench::seconds_since(start);
  watchdog.finish();
  return part;
}

double nanoseconds_per_record() {
  constexpr int kRecords = 1'000'000;
  comm::Ledger ledger;
  ledger.set_bucket_names({"layer3.0.conv1.weight ... layer3.2.bn3.bias"});
  comm::LedgerGroup group(ledger, comm::world_group(1));
  const auto start = bench::Clock::now();
  for (int i = 0; i < kRecords; ++i) {
    group.begin({"all_reduce_sum", i, {.bucket = 0}});
    group.end();
  }
  return 1e9 * bench::seconds_since(start) / kRecords;
}

int run(const std::string& network, int64_t batch, int pairs, double seconds) {
  comm::mpi::Session session;
  auto communicator = comm::mpi::create_communicator();
  std::vector<double> ratios;
  double step_ms = 0;
  {
    Stepper stepper(bench::config_of(network, batch * communicator->size()), *communicator);
    const double once = stepper.run(20) / 20;
    const auto steps =
        std::stoll(broadcast(*communicator, std::to_string(std::max(1.0, seconds / once)), 0));
    for (int pair = 0; pair < pairs; ++pair) {
      // The order alternates, so that drift affects both.
      double with = 0;
      if (pair % 2 == 0) with = watched(stepper, *communicator, steps);
      const double without = stepper.run(steps);
      if (pair % 2 == 1) with = watched(stepper, *communicator, steps);
      ratios.push_back(with / without);
      step_ms = 1e3 * without / static_cast<double>(steps);
    }
  }
  const double part = fraction_of_a_core(*communicator);
  if (communicator->rank() == 0) {
    fmt::print(R"({{"bench":"watchdog","network":"{}","ranks":{},"step_ms":{:.3f},"pairs":{},)"
               R"("watched_over_unwatched":{:.4f},"thread_part_of_a_core":{:.5f},)"
               R"("note_ns":{:.0f}}})"
               "\n",
               network, communicator->size(), step_ms, pairs, bench::median(ratios), part,
               nanoseconds_per_record());
  }
  communicator.reset();
  session.finalize();
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  return trireme::run(argc > 1 ? argv[1] : "lenet", argc > 2 ? std::atoll(argv[2]) : 64,
                      argc > 3 ? std::atoi(argv[3]) : 21, argc > 4 ? std::atof(argv[4]) : 0.5);
}
