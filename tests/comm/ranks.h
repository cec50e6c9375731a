// The main of tests whose every case runs on every rank.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi/session.h"

namespace trireme::test {

// How ranks are spread over hosts; tests use one machine, so more hosts are pretended.
enum class Hosts { kReal, kHalves, kInterleaved, kOneEach };

inline std::string name_of(Hosts hosts) {
  switch (hosts) {
    case Hosts::kReal:
      return "Real";
    case Hosts::kHalves:  // 4 ranks: 2 + 2; 3 ranks: 2 + 1
      return "Halves";
    case Hosts::kInterleaved:
      return "Interleaved";
    case Hosts::kOneEach:
      return "OneEach";
  }
  return "?";
}

inline int started_ranks() {
  const char* text = std::getenv("OMPI_COMM_WORLD_SIZE");
  return text ? std::atoi(text) : 1;
}

inline int own_rank() {
  const char* text = std::getenv("OMPI_COMM_WORLD_RANK");
  return text ? std::atoi(text) : 0;
}

inline int host_of(Hosts hosts, int rank, int ranks) {
  switch (hosts) {
    case Hosts::kReal:
      return 0;
    case Hosts::kHalves:
      return rank / ((ranks + 1) / 2);
    case Hosts::kInterleaved:
      return rank % 2;
    case Hosts::kOneEach:
      return rank;
  }
  return 0;
}

inline std::unique_ptr<Communicator> join(Hosts hosts = Hosts::kReal) {
  if (hosts == Hosts::kReal) return mpi::create_communicator();
  return mpi::create_communicator(host_of(hosts, own_rank(), started_ranks()));
}

// Runs work in the caller.
inline std::unique_ptr<Device> cpu() { return create_cpu_device(1); }

// Each element of every rank's data, by rank.
template <class T>
std::vector<T> gather(Communicator& communicator, const T* data, int64_t count, Stream& stream) {
  std::vector<T> all(static_cast<size_t>(count * communicator.size()));
  communicator.all_gather(data, all.data(), count * static_cast<int64_t>(sizeof(T)), DType::kU8,
                          stream);
  stream.synchronize();
  return all;
}

// Rank 0 reports as usual, the others only what fails. After a failure the ranks may be apart:
// leaving without a goodbye ends them all.
class RankPrinter final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed() || own_rank() == 0) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", own_rank(),
                 result.file_name() ? result.file_name() : "", result.line_number(),
                 result.message());
  }
  void OnTestEnd(const testing::TestInfo& info) override {
    if (!info.result()->Failed()) return;
    std::fprintf(stderr, "rank %d: %s.%s failed\n", own_rank(), info.test_suite_name(),
                 info.name());
    std::fflush(nullptr);
    std::_Exit(1);
  }
};

inline int run_on_all_ranks(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  mpi::Session session;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (own_rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankPrinter);
  const int result = RUN_ALL_TESTS();
  session.finalize();
  return result;
}

}  // namespace trireme::test
