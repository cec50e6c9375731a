#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi/checked.h"
#include "comm/mpi/host_sum.h"
#include "comm/mpi/reduction.h"
#include "comm/mpi/shared_window.h"

namespace trireme::mpi {

class MpiCommunicator final : public Communicator {
 public:
  // `all`: the ranks, which are the group's; `host`: those of this host. All ranks call it.
  MpiCommunicator(Comm all, Comm host, std::shared_ptr<Ledger> ledger, Group group);

  const Placement& placement() const override { return placement_; }
  std::string transport() const override { return "MPI"; }
  std::string failure() const override;
  Ledger& ledger() override { return *ledger_; }
  Buffer allocate(size_t bytes) override;
  std::unique_ptr<HostMemory> share(size_t bytes) override {
    return std::make_unique<SharedWindow>(host_, bytes);
  }
  void all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream, CallTag tag) override;
  void reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                          CallTag tag) override;
  void all_gather(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                  CallTag tag) override;
  void broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream,
                 CallTag tag) override;
  void send(const void* data, int64_t count, DType dtype, int to, Stream& stream,
            CallTag tag) override;
  void recv(void* data, int64_t count, DType dtype, int from, Stream& stream, CallTag tag) override;
  void barrier(Stream& stream) override;
  std::unique_ptr<Communicator> split(int colour, int key) override;
  [[noreturn]] void abort(int exit_code) noexcept override;

 private:
  // What allocate() handed out.
  struct Allocation {
    std::unique_ptr<SharedWindow> window;
    uint64_t number;  // the same on all ranks
  };

  const Allocation* find(const void* data, size_t bytes);
  void release(const void* data);
  // Runs work(MpiCommunicator&, count, dtype) on the stream, recorded in the ledger; a failure of
  // it fails the other ranks of this host too.
  template <class Work>
  void run(Stream& stream, const Call& call, CallTag tag, Work work);
  // A call as messages are to name it: the peer is a rank of the world.
  Call with_peer(const char* name, int64_t count, DType dtype, const char* role, int peer) const;

  const std::shared_ptr<Ledger> ledger_;
  LedgerGroup recorded_;  // goes after all that takes the other ranks to let go of
  Comm all_;
  Comm host_;
  Comm leaders_;
  Placement placement_;
  Reduction reduction_;
  std::unique_ptr<HostSum> sum_;
  std::mutex mutex_;  // over allocations
  std::vector<std::unique_ptr<Allocation>> allocations_;
  uint64_t allocated_ = 0;
  uint64_t splits_ = 0;
};

}  // namespace trireme::mpi
