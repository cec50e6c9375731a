// A base class for communicators of tests.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "comm/communicator.h"

namespace trireme::test {

// Behaves like another communicator, by default that of a world of one rank.
class ForwardingCommunicator : public comm::Communicator {
 public:
  explicit ForwardingCommunicator(
      std::unique_ptr<comm::Communicator> other = comm::create_local_communicator())
      : other_(std::move(other)) {}
  const comm::Placement& placement() const override { return other_->placement(); }
  std::string transport() const override { return other_->transport(); }
  comm::Ledger& ledger() override { return other_->ledger(); }
  Buffer allocate(size_t bytes) override { return other_->allocate(bytes); }
  std::unique_ptr<comm::HostMemory> share(size_t bytes) override { return other_->share(bytes); }
  void all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream,
                      CallTag tag) override {
    other_->all_reduce_sum(data, count, dtype, stream, tag);
  }
  void reduce_scatter_sum(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                          CallTag tag) override {
    other_->reduce_scatter_sum(in, out, count, dtype, stream, tag);
  }
  void all_gather(const void* in, void* out, int64_t count, DType dtype, Stream& stream,
                  CallTag tag) override {
    other_->all_gather(in, out, count, dtype, stream, tag);
  }
  void broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream,
                 CallTag tag) override {
    other_->broadcast(data, count, dtype, root, stream, tag);
  }
  void send(const void* data, int64_t count, DType dtype, int to, Stream& stream,
            CallTag tag) override {
    other_->send(data, count, dtype, to, stream, tag);
  }
  void recv(void* data, int64_t count, DType dtype, int from, Stream& stream,
            CallTag tag) override {
    other_->recv(data, count, dtype, from, stream, tag);
  }
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return other_->split(color, key);
  }
  void barrier(Stream& stream) override { other_->barrier(stream); }
  [[noreturn]] void abort(int code) noexcept override { std::_Exit(code); }

 private:
  std::unique_ptr<comm::Communicator> other_;
};

}  // namespace trireme::test
