// A base class for communicators of tests.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace trireme::test {

// Behaves like the communicator of a world of one rank.
class ForwardingCommunicator : public comm::Communicator {
 public:
  const comm::Placement& placement() const override { return local_->placement(); }
  std::string transport() const override { return local_->transport(); }
  comm::Ledger& ledger() override { return local_->ledger(); }
  Buffer allocate(size_t bytes) override { return local_->allocate(bytes); }
  std::unique_ptr<comm::HostMemory> share(size_t bytes) override { return local_->share(bytes); }
  void all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream,
                      CallTag tag) override {
    local_->all_reduce_sum(data, count, dtype, stream, tag);
  }
  void reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                          CallTag tag) override {
    local_->reduce_scatter_sum(in, out, count, dtype, stream, tag);
  }
  void all_gather(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                  CallTag tag) override {
    local_->all_gather(in, out, count, dtype, stream, tag);
  }
  void broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream,
                 CallTag tag) override {
    local_->broadcast(data, count, dtype, root, stream, tag);
  }
  void send(const void* data, int64_t count, DType dtype, int to, Stream& stream,
            CallTag tag) override {
    local_->send(data, count, dtype, to, stream, tag);
  }
  void recv(void* data, int64_t count, DType dtype, int from, Stream& stream,
            CallTag tag) override {
    local_->recv(data, count, dtype, from, stream, tag);
  }
  void barrier(Stream& stream) override { local_->barrier(stream); }
  [[noreturn]] void abort(int code) noexcept override { std::_Exit(code); }

 private:
  std::unique_ptr<comm::Communicator> local_ = comm::create_local_communicator();
};

}  // namespace trireme::test
