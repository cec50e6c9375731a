#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "comm/communicator.h"

namespace trireme::comm {
namespace {

class LocalCommunicatorTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = create_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->create_stream(StreamKind::kCompute);
  std::unique_ptr<Communicator> communicator_ = create_local_communicator();
  const std::vector<float> in_ = {1, 2, 3};
};

TEST_F(LocalCommunicatorTest, IsAWorldOfOne) {
  const Placement& placement = communicator_->placement();
  EXPECT_EQ(placement.rank, 0);
  EXPECT_EQ(placement.ranks, 1);
  EXPECT_EQ(placement.hosts, 1);
  const auto part = communicator_->split(3, 0);
  EXPECT_EQ(part->size(), 1);
  EXPECT_NE(part->placement().group.id, placement.group.id);
  EXPECT_NE(part->placement().group.id, communicator_->split(3, 0)->placement().group.id);
}

TEST_F(LocalCommunicatorTest, SumsAreCopies) {
  std::vector<float> data = in_;
  communicator_->all_reduce_sum(data.data(), 3, DType::kF32, *stream_);
  EXPECT_EQ(data, in_);
  std::vector<float> out(3);
  communicator_->reduce_scatter_sum(in_.data(), out.data(), 3, DType::kF32, *stream_);
  EXPECT_EQ(out, in_);
  EXPECT_THROW(communicator_->all_reduce_sum(data.data(), 3, DType::kU8, *stream_), CommError);
}

TEST_F(LocalCommunicatorTest, GathersItself) {
  std::vector<float> out(3);
  communicator_->all_gather(in_.data(), out.data(), 3, DType::kF32, *stream_);
  EXPECT_EQ(out, in_);
  communicator_->broadcast(out.data(), 3, DType::kF32, 0, *stream_);
  communicator_->barrier(*stream_);
  EXPECT_EQ(out, in_);
}

TEST_F(LocalCommunicatorTest, HasNoPeers) {
  float data = 0;
  EXPECT_THROW(communicator_->broadcast(&data, 1, DType::kF32, 1, *stream_), CommError);
  EXPECT_THROW(communicator_->send(&data, 1, DType::kF32, 1, *stream_), CommError);
  EXPECT_THROW(communicator_->recv(&data, 1, DType::kF32, 1, *stream_), CommError);
}

// The memory of an earlier part is used again, if possible.
TEST_F(LocalCommunicatorTest, SharesZeroedMemory) {
  constexpr size_t kBytes = 4000;
  for (int i = 0; i < 3; ++i) {
    const std::unique_ptr<HostMemory> memory = communicator_->share(kBytes);
    const std::span part(memory->parts()[0], kBytes);
    EXPECT_TRUE(std::ranges::all_of(part, [](std::byte each) { return each == std::byte{0}; }));
    std::ranges::fill(part, std::byte{0xAB});
  }
}

TEST_F(LocalCommunicatorTest, AllocatesZeroedMemory) {
  for (size_t bytes : {size_t{0}, size_t{10}, size_t{4096}, size_t{100'001}}) {
    const Buffer buffer = communicator_->allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_EQ(std::count(buffer.data(), buffer.data() + bytes, std::byte{0}),
              static_cast<int64_t>(bytes));
  }
}

}  // namespace
}  // namespace trireme::comm
