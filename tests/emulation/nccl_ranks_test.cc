// The emulated NCCL of two ranks: it must be as strict as NCCL may be, or errors in the order of
// operations would not be found.
#include <gtest/gtest.h>
#include <nccl_faults.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "emulation.h"
#include "tests/comm/ranks.h"

namespace trireme {
namespace {

using emulation::nccl_faults;

class NcclRanksTest : public testing::Test {
 protected:
  // Two communicators, each with a stream of its own.
  struct Link {
    std::unique_ptr<comm::Communicator> communicator;
    std::unique_ptr<Stream> stream;
    Buffer data;
  };
  Link link() {
    return {self_.communicator->split(0, self_.communicator->rank()),
            self_.device->create_stream(StreamKind::kBackground), self_.copy_of<float>({own_})};
  }
  ~NcclRanksTest() override { nccl_faults().patience_ms = kPatience; }

  void send(Link& link) {
    link.communicator->send(link.data.data(), 1, DType::kF32, peer_, *link.stream);
  }
  void receive(Link& link) {
    link.communicator->recv(link.data.data(), 1, DType::kF32, peer_, *link.stream);
  }
  // Queues a transfer that connects the link, in which rank 0 sends or receives.
  void connect(Link& link, bool rank_0_sends) {
    (rank_ == 0) == rank_0_sends ? send(link) : receive(link);
    link.stream->synchronize();
  }
  void expect_deadlock(Stream& stream, const std::string& operation) {
    try {
      stream.synchronize();
      ADD_FAILURE() << "no deadlock";
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find(operation), std::string::npos) << error.what();
    }
    emulation::recover();
  }

  // Blocks the host.
  void wait_for_peer() { world_->barrier(*cpu_->create_stream(StreamKind::kCompute)); }

  static constexpr int kPatience = 60'000;
  std::unique_ptr<Device> cpu_ = test::cpu();
  std::unique_ptr<comm::Communicator> world_ = test::join();
  test::Rank self_{{test::Way::kNccl}};
  const int rank_ = self_.communicator->rank();
  const int peer_ = 1 - rank_;
  const float own_ = static_cast<float>(rank_ + 1);
};

// A send ends when it is received, not when it is queued.
TEST_F(NcclRanksTest, SendWaitsForItsReceiver) {
  Link one = link();
  connect(one, /*rank_0_sends=*/true);
  if (rank_ == 0) {
    nccl_faults().patience_ms = 300;
    send(one);
    expect_deadlock(*one.stream, "ncclSend");
  }
  wait_for_peer();
}

// The first transfer between two ranks connects them.
TEST_F(NcclRanksTest, FirstTransferBlocksTheHostUntilThePeerTakesPart) {
  Link one = link();
  if (rank_ == 0) {
    std::atomic<bool> returned = false;
    std::thread thread([&] {
      send(one);
      returned = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_FALSE(returned);
    wait_for_peer();
    thread.join();
  } else {
    wait_for_peer();
    receive(one);
  }
  one.stream->synchronize();
}

// Rank 0 sends over the first link and receives over the second, rank 1 the reverse. Both begin
// with the same one of the two.
TEST_F(NcclRanksTest, OppositeOrdersDeadlock) {
  for (const bool sends_first : {true, false}) {
    Link one = link(), two = link();
    connect(one, true);
    connect(two, false);
    nccl_faults().patience_ms = 1000;
    Link& outgoing = rank_ == 0 ? one : two;
    Link& incoming = rank_ == 0 ? two : one;
    if (sends_first) send(outgoing);
    receive(incoming);
    if (!sends_first) send(outgoing);
    expect_deadlock(*outgoing.stream, sends_first ? "ncclSend" : "ncclRecv");
    nccl_faults().patience_ms = kPatience;
    wait_for_peer();
  }
}

TEST_F(NcclRanksTest, OneOrderOfBothRanksEnds) {
  Link one = link(), two = link();
  connect(one, true);
  connect(two, false);
  for (uint64_t seed = 1; seed < 20; ++seed) {
    emulation::set_seed(seed);
    rank_ == 0 ? send(one) : receive(one);
    rank_ == 0 ? receive(two) : send(two);
    one.stream->synchronize();
    two.stream->synchronize();
  }
  const Link& incoming = rank_ == 0 ? two : one;
  const float sent = static_cast<float>(peer_ + 1);
  EXPECT_EQ(self_.read<float>(incoming.data.data(), 1), std::vector<float>{sent});
}

TEST_F(NcclRanksTest, ComputesWhileATransferWaits) {
  Link one = link();
  connect(one, /*rank_0_sends=*/true);
  for (uint64_t seed = 1; seed < 20; ++seed) {
    emulation::set_seed(seed);
    const Buffer data = self_.device->allocate(sizeof(float));
    if (rank_ == 1) receive(one);
    self_.device->fill_zero(data.data(), sizeof(float), *self_.stream);
    self_.stream->synchronize();
    wait_for_peer();
    if (rank_ == 0) send(one);
    one.stream->synchronize();
    wait_for_peer();
  }
}

TEST_F(NcclRanksTest, CancelEndsATransferWithoutItsPeer) {
  Link one = link();
  connect(one, /*rank_0_sends=*/true);
  if (rank_ == 1) {
    receive(one);
    one.communicator->cancel();
    one.stream->synchronize();
    EXPECT_THROW(receive(one), CommError);
  }
  wait_for_peer();
}

TEST_F(NcclRanksTest, DifferentSizesFail) {
  Link one = link();
  connect(one, true);
  nccl_faults().patience_ms = 1000;
  if (rank_ == 0) {
    send(one);
  } else {
    one.communicator->recv(one.data.data(), 1, DType::kU8, peer_, *one.stream);
  }
  expect_deadlock(*one.stream, rank_ == 0 ? "another number of bytes" : "ncclRecv");
}

}  // namespace
}  // namespace trireme
