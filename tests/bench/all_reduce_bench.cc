// Compares Trireme's all-reduce over the ranks of one host with MPI's, alternating in one run. MPI
// runs twice: with memory from malloc, and with memory of the device, which uses huge pages if
// possible.
//   mpirun -np 2 all_reduce_bench [BYTES] [ROUNDS]
// Prints one line of JSON: the medians over the rounds, and the best rounds. The time of a round is
// that of its slowest rank.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "comm/world.h"
#include "tests/bench/measure.h"

namespace trireme {
namespace {

// Measures rounds. The result for each round is the time of the slowest rank in milliseconds.
class Series {
 public:
  void time(comm::Communicator& communicator, Stream& stream, const std::function<void()>& work) {
    communicator.barrier(stream);
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    milliseconds_.push_back(taken.count());
  }
  std::vector<double> slowest(comm::Communicator& communicator, Stream& stream) const {
    const size_t rounds = milliseconds_.size();
    std::vector<double> all(rounds * static_cast<size_t>(communicator.size()));
    communicator.all_gather(milliseconds_.data(), all.data(), static_cast<int64_t>(rounds),
                            DType::kF64, stream);
    std::vector<double> result(rounds);
    for (size_t i = 0; i < all.size(); ++i) {
      result[i % rounds] = std::max(result[i % rounds], all[i]);
    }
    return result;
  }

 private:
  std::vector<double> milliseconds_;
};

void run(comm::Communicator& communicator, int64_t bytes, int rounds) {
  const auto device = create_cpu_device(1);
  const auto stream = device->create_stream(StreamKind::kCompute);
  const Buffer shared = communicator.allocate(static_cast<size_t>(bytes));
  const Buffer plain = device->allocate(static_cast<size_t>(bytes));
  const int64_t count = bytes / 4;
  std::vector<float> small_pages(static_cast<size_t>(count));
  Series ours;
  Series ours_plain;
  Series theirs;
  Series theirs_huge;
  const auto by_mpi = [count](Series& series, comm::Communicator& world, Stream& its_stream,
                              float* data) {
    std::fill_n(data, count, 1.0f);
    series.time(world, its_stream, [&] {
      MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    });
  };
  for (int round = 0; round < rounds; ++round) {
    std::fill_n(shared.as<float>(), count, 1.0f);
    ours.time(communicator, *stream,
              [&] { communicator.all_reduce_sum(shared.data(), count, DType::kF32, *stream); });
    by_mpi(theirs, communicator, *stream, small_pages.data());
    by_mpi(theirs_huge, communicator, *stream, plain.as<float>());
    std::fill_n(plain.as<float>(), count, 1.0f);
    ours_plain.time(communicator, *stream, [&] {
      communicator.all_reduce_sum(plain.data(), count, DType::kF32, *stream);
    });
  }
  const auto mine = ours.slowest(communicator, *stream);
  const auto mine_plain = ours_plain.slowest(communicator, *stream);
  const auto mpi = theirs.slowest(communicator, *stream);
  const auto mpi_huge = theirs_huge.slowest(communicator, *stream);
  std::vector<double> ratios;
  std::vector<double> ratios_huge;
  for (size_t i = 0; i < mine.size(); ++i) {
    ratios.push_back(mpi[i] / mine[i]);
    ratios_huge.push_back(mpi_huge[i] / mine[i]);
  }
  if (communicator.rank() != 0) return;
  std::printf(
      "{\"bench\": \"all_reduce\", \"ranks\": %d, \"bytes\": %lld, \"rounds\": %d, "
      "\"shared_ms\": %.4f, \"plain_ms\": %.4f, \"mpi_ms\": %.4f, \"mpi_huge_pages_ms\": %.4f, "
      "\"mpi_over_shared\": %.2f, \"mpi_huge_pages_over_shared\": %.2f, "
      "\"shared_best_ms\": %.4f, \"mpi_best_ms\": %.4f}\n",
      communicator.size(), static_cast<long long>(bytes), rounds, bench::median(mine),
      bench::median(mine_plain), bench::median(mpi), bench::median(mpi_huge), bench::median(ratios),
      bench::median(ratios_huge), std::ranges::min(mine), std::ranges::min(mpi));
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const int64_t bytes = argc > 1 ? std::atoll(argv[1]) : 25 << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 50;
  trireme::comm::World world;
  if (world.communicator().size() == 1 || bytes < 4 || rounds < 1) {
    std::fprintf(stderr, "usage: mpirun -np RANKS all_reduce_bench [BYTES] [ROUNDS]\n");
    return 2;
  }
  trireme::run(world.communicator(), bytes, rounds);
  world.finalize();
  return 0;
}
