// Tests the real library, if it is installed, without a GPU.
#include "comm/nccl/nccl_library.h"

#include <gtest/gtest.h>

namespace trireme::comm::nccl {
namespace {

TEST(NcclLibraryTest, HasTheFunctionsThatAreUsed) {
  const cuda::Library file("NCCL", {"libnccl.so.2"});
  if (!file.handle()) GTEST_SKIP() << file.problem();
  const Library library;
  EXPECT_TRUE(library.version().starts_with("2.")) << library.version();
  ncclUniqueId id = {};
  EXPECT_EQ(library.get_unique_id(&id), ncclSuccess);
  // Rank 7 of 1 is refused at once on any machine.
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = library.comm_init(&comm, 1, id, 7, &config);
  EXPECT_NE(result, ncclSuccess);
  EXPECT_NE(result, ncclInProgress);
  EXPECT_EQ(comm, nullptr);
  EXPECT_FALSE(library.explain(result).empty());
}

}  // namespace
}  // namespace trireme::comm::nccl
