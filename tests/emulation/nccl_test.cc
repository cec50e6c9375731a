// Failures of NCCL communicators: calls must never block forever. Uses an emulated GPU, whose NCCL
// can be made to fail.
#include "comm/nccl/nccl.h"

#include <gtest/gtest.h>
#include <nccl_faults.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/bucketer.h"
#include "comm/device_communicator.h"
#include "tests/comm/forwarding_communicator.h"

namespace trireme {
namespace {

using emulation::nccl_faults;

// A world of one rank that can be notified of a lost peer. Communicators split from it are
// notified, too, but not those split from them.
class Host final : public test::ForwardingCommunicator {
 public:
  explicit Host(std::shared_ptr<std::atomic<bool>> lost, bool of_world = true)
      : lost_(std::move(lost)), of_world_(of_world) {}
  std::string failure() const override { return *lost_ ? "rank 1 (pid 7) has ended" : ""; }
  std::unique_ptr<comm::Communicator> split(int, int) override {
    return std::make_unique<Host>(of_world_ ? lost_ : std::make_shared<std::atomic<bool>>(false),
                                  /*of_world=*/false);
  }

 private:
  std::shared_ptr<std::atomic<bool>> lost_;
  bool of_world_;
};

class NcclTest : public testing::Test {
 protected:
  ~NcclTest() override {
    nccl_faults().never_ready = false;
    nccl_faults().stuck = false;
    nccl_faults().no_allocator = false;
    nccl_faults().error = ncclSuccess;
  }

  std::unique_ptr<comm::Communicator> create() {
    return comm::create_device_communicator(host_, *device_, comm::Transport::kNccl);
  }
  // Returns the message that `work` throws if `trouble` occurs a little later.
  template <class Work, class Trouble>
  static std::string failure_of(Work work, Trouble trouble) {
    std::thread thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      trouble();
    });
    std::string message;
    try {
      work();
    } catch (const CommError& error) {
      message = error.what();
    }
    thread.join();
    return message;
  }

  std::shared_ptr<std::atomic<bool>> lost_ = std::make_shared<std::atomic<bool>>(false);
  Host host_{lost_};
  std::unique_ptr<Device> device_ = create_cuda_device(0);
  std::unique_ptr<Stream> stream_ = device_->create_stream(StreamKind::kCompute);
};

TEST_F(NcclTest, LostPeerEndsAStuckSum) {
  const auto communicator = create();
  const Buffer data = communicator->allocate(400);
  nccl_faults().stuck = true;
  communicator->all_reduce_sum(data.data(), 100, DType::kF32, *stream_);
  const std::string message = failure_of([&] { stream_->synchronize(); }, [&] { *lost_ = true; });
  EXPECT_EQ(message,
            "NCCL: rank 1 (pid 7) has ended; the last call queued was all_reduce_sum of 100 f32");
  EXPECT_EQ(communicator->failure(), message);
  EXPECT_THROW(communicator->barrier(*stream_), CommError);
  EXPECT_THROW(stream_->synchronize(), CommError);
}

TEST_F(NcclTest, NcclErrorEndsAStuckSum) {
  const auto communicator = create();
  const Buffer data = communicator->allocate(400);
  nccl_faults().stuck = true;
  communicator->broadcast(data.data(), 100, DType::kF32, 0, *stream_);
  const auto done = device_->create_event();
  stream_->record(*done);
  const std::string message =
      failure_of([&] { done->synchronize(); }, [] { nccl_faults().error = ncclRemoteError; });
  EXPECT_NE(message.find("a remote process has ended (reported by the emulation)"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("broadcast of 100 f32 from rank 0"), std::string::npos) << message;
}

TEST_F(NcclTest, LostPeerEndsAStuckReplay) {
  const auto communicator = create();
  const Buffer data = communicator->allocate(400);
  const auto recording = device_->record(
      *stream_, [&] { communicator->all_reduce_sum(data.data(), 100, DType::kF32, *stream_); });
  recording->replay(*stream_);
  stream_->synchronize();
  nccl_faults().stuck = true;
  recording->replay(*stream_);
  EXPECT_NE(failure_of([&] { stream_->synchronize(); }, [&] { *lost_ = true; }), "");
}

// Nothing would be captured if a single rank skipped its sums.
TEST_F(NcclTest, OneRankSumsBucketsIfRequested) {
  const auto communicator = create();
  const Buffer gradients = communicator->allocate(400);
  for (const bool asked : {false, true}) {
    comm::Bucketer bucketer(*communicator, *device_, *stream_, gradients.data(), DType::kF32,
                            {{0, 50}, {50, 100}}, /*wire=*/{}, /*slots=*/1, asked);
    const auto recording = device_->record(*stream_, [&] {
      bucketer.advance(50);
      bucketer.finish();
    });
    recording->replay(*stream_);
    stream_->synchronize();
    EXPECT_EQ(bucketer.communication_seconds() > 0, asked);
    if (!asked) continue;
    nccl_faults().stuck = true;
    recording->replay(*stream_);
    EXPECT_NE(failure_of([&] { stream_->synchronize(); }, [&] { *lost_ = true; }), "");
  }
}

TEST_F(NcclTest, LostPeerEndsTheWaitForIt) {
  nccl_faults().never_ready = true;
  EXPECT_EQ(failure_of([&] { create(); }, [&] { *lost_ = true; }),
            "NCCL: rank 1 (pid 7) has ended; the last call queued was connect");
}

TEST_F(NcclTest, LostPeerEndsASplit) {
  const auto communicator = create();
  nccl_faults().never_ready = true;
  EXPECT_EQ(failure_of([&] { communicator->split(0, 0); }, [&] { *lost_ = true; }),
            "NCCL: rank 1 (pid 7) has ended; the last call queued was split");
}

TEST_F(NcclTest, SplitCommunicatorsFailTogether) {
  const auto communicator = create();
  const auto part = communicator->split(0, 0);
  EXPECT_EQ(part->failure(), "");
  const Buffer data = communicator->allocate(400);
  nccl_faults().stuck = true;
  communicator->all_reduce_sum(data.data(), 100, DType::kF32, *stream_);
  EXPECT_NE(failure_of([&] { stream_->synchronize(); }, [&] { *lost_ = true; }), "");
  for (int i = 0; i < 100 && part->failure().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_NE(part->failure().find("rank 1 (pid 7) has ended"), std::string::npos);
}

TEST_F(NcclTest, DestructionDoesNotWaitForALostPeer) {
  auto communicator = create();
  nccl_faults().never_ready = true;
  EXPECT_EQ(failure_of([&] { communicator.reset(); }, [&] { *lost_ = true; }), "");
  EXPECT_THROW(stream_->synchronize(), CommError);
}

TEST_F(NcclTest, DestructionDuringAnExceptionDoesNotWaitForPeers) {
  EXPECT_THROW(
      {
        const auto communicator = create();
        nccl_faults().never_ready = true;
        throw DataError("shard-1.tar", "it is cut short");
      },
      DataError);
}

TEST_F(NcclTest, WorksWithoutNcclAllocator) {
  const auto communicator = create();
  nccl_faults().no_allocator = true;
  const Buffer data = communicator->allocate(400);
  communicator->all_reduce_sum(data.data(), 100, DType::kF32, *stream_);
  std::vector<float> values(100, 1.0f);
  device_->copy(values.data(), data.data(), 400, *stream_);
  stream_->synchronize();
  EXPECT_EQ(values, std::vector<float>(100, 0.0f));
}

TEST_F(NcclTest, RejectsPeersThatDoNotExist) {
  const auto communicator = create();
  const Buffer data = device_->allocate(400);
  EXPECT_THROW(communicator->send(data.data(), 1, DType::kF32, 0, *stream_), CommError);
  EXPECT_THROW(communicator->recv(data.data(), 1, DType::kF32, 1, *stream_), CommError);
  EXPECT_THROW(communicator->broadcast(data.data(), 1, DType::kF32, -1, *stream_), CommError);
}

}  // namespace
}  // namespace trireme
