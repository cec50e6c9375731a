#include "comm/device_communicator.h"

#include "tests/comm/ranks.h"

namespace trireme::comm {
namespace {

// Returns the message with which NCCL is refused.
std::string refusal_of_nccl(Communicator& world, Device& device) {
  try {
    create_device_communicator(world, device, Transport::kNccl);
  } catch (const CommError& error) {
    return error.what();
  }
  return "none";
}

TEST(DeviceCommunicatorTest, UsesTheTransportOfTheWorldOnTheCpu) {
  const auto world = test::join();
  const auto device = test::cpu();
  for (const Transport transport : {Transport::kAuto, Transport::kMpi}) {
    const auto communicator = create_device_communicator(*world, *device, transport);
    EXPECT_EQ(communicator->transport(), world->transport());
    EXPECT_EQ(communicator->rank(), world->rank());
    EXPECT_EQ(communicator->size(), world->size());
  }
  EXPECT_TRUE(refusal_of_nccl(*world, *device).starts_with("NCCL cannot be used: rank 0: "))
      << refusal_of_nccl(*world, *device);
}

TEST(DeviceCommunicatorTest, RanksThatShareAGpuUseHostMemory) {
  if (query_cuda().devices == 0) GTEST_SKIP() << query_cuda().problem;
  const auto world = test::join();
  if (world->size() == 1) GTEST_SKIP() << "takes two ranks";
  const auto device = create_cuda_device(0);
  EXPECT_EQ(create_device_communicator(*world, *device, Transport::kAuto)->transport(),
            "MPI through host memory");
  EXPECT_EQ(refusal_of_nccl(*world, *device), "NCCL cannot be used: ranks 0 and 1 share GPU " +
                                                  query_cuda().ids[0] + " of " +
                                                  world->placement().host_name);
}

TEST(DeviceCommunicatorTest, RanksWithGpusOfTheirOwnUseNccl) {
  const int gpus = query_cuda().devices;
  if (gpus < test::started_ranks()) GTEST_SKIP() << "not enough GPUs";
  const auto world = test::join();
  const auto device = create_cuda_device(world->rank());
  // A single rank does not need NCCL.
  const std::string expected = world->size() == 1 ? "MPI" : "NCCL ";
  const std::string chosen =
      create_device_communicator(*world, *device, Transport::kAuto)->transport();
  EXPECT_TRUE(chosen.starts_with(expected)) << chosen;
  const std::string requested =
      create_device_communicator(*world, *device, Transport::kNccl)->transport();
  EXPECT_TRUE(requested.starts_with("NCCL ")) << requested;
}

}  // namespace
}  // namespace trireme::comm
