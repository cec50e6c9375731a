// Fixtures for tests in which every case runs on all ranks.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/device_communicator.h"
#include "comm/memory.h"
#include "comm/mpi/session.h"
#include "comm/staged/staged_communicator.h"

namespace trireme::test {

// How ranks are distributed over hosts. Tests run on one machine, so several hosts are simulated.
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

inline std::unique_ptr<comm::Communicator> join(Hosts hosts = Hosts::kReal) {
  if (hosts == Hosts::kReal) return comm::mpi::create_communicator();
  return comm::mpi::create_communicator(host_of(hosts, own_rank(), started_ranks()));
}

// Returns a device that runs work on the calling thread.
inline std::unique_ptr<Device> cpu() { return create_cpu_device(1); }

// The kind of memory that is communicated, and the transport.
enum class Way { kHost, kStagedOnCpu, kStagedOnGpu, kNccl };

struct Setup {
  Way way;
  Hosts hosts = Hosts::kReal;
};

inline std::string name_of(const Setup& setup) {
  switch (setup.way) {
    case Way::kHost:
      return name_of(setup.hosts);
    case Way::kStagedOnCpu:
      return "StagedOnCpu" + name_of(setup.hosts);
    case Way::kStagedOnGpu:
      return "StagedOnGpu" + name_of(setup.hosts);
    case Way::kNccl:
      return "Nccl";
  }
  return "?";
}

// Returns the setups that are possible on this machine. Ranks may share GPUs, but not with NCCL.
inline std::vector<Setup> setups() {
  std::vector<Setup> all = {{Way::kHost},
                            {Way::kHost, Hosts::kHalves},
                            {Way::kHost, Hosts::kInterleaved},
                            {Way::kHost, Hosts::kOneEach},
                            {Way::kStagedOnCpu},
                            {Way::kStagedOnCpu, Hosts::kHalves}};
  const int gpus = query_cuda().devices;
  if (gpus > 0) all.push_back({Way::kStagedOnGpu});
  if (gpus >= started_ranks()) all.push_back({Way::kNccl});
  return all;
}

// This rank, with its device and communicator.
class Rank {
 public:
  explicit Rank(const Setup& setup) : host_(join(setup.hosts)) {
    const bool on_gpu = setup.way == Way::kStagedOnGpu || setup.way == Way::kNccl;
    device = on_gpu ? create_cuda_device(own_rank() % query_cuda().devices) : cpu();
    stream = device->create_stream(StreamKind::kCompute);
    if (setup.way == Way::kStagedOnCpu) {
      communicator = comm::create_staged_communicator(std::move(host_), *device);
    } else {
      const auto transport =
          setup.way == Way::kNccl ? comm::Transport::kNccl : comm::Transport::kMpi;
      communicator = comm::create_device_communicator(*host_, *device, transport);
    }
  }

  template <class T>
  void write(void* to, const std::vector<T>& values) {
    device->copy(to, values.data(), values.size() * sizeof(T), *stream);
    stream->synchronize();
  }
  template <class T>
  std::vector<T> read(const void* from, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    device->copy(values.data(), from, values.size() * sizeof(T), *stream);
    stream->synchronize();
    return values;
  }
  template <class T>
  Buffer copy_of(const std::vector<T>& values) {
    Buffer buffer = device->allocate(values.size() * sizeof(T));
    write(buffer.data(), values);
    return buffer;
  }

 private:
  std::unique_ptr<comm::Communicator> host_;

 public:
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<comm::Communicator> communicator;
};

// Reports failures of ranks other than 0, which prints the usual output. After a failure, the ranks
// may be at different places, so the process exits without finalizing MPI, which ends all ranks.
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

// With an emulated GPU, each rank has one of its own. Call it before gtest creates parameters.
inline void emulate_device_of_each_rank() {
  setenv("TRIREME_EMULATION_DEVICES", std::to_string(started_ranks()).c_str(), /*overwrite=*/0);
}

inline int run_on_all_ranks(int argc, char** argv) {
  emulate_device_of_each_rank();
  testing::InitGoogleTest(&argc, argv);
  comm::mpi::Session session;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (own_rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankPrinter);
  const int result = RUN_ALL_TESTS();
  session.finalize();
  return result;
}

}  // namespace trireme::test
