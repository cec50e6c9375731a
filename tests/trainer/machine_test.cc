#include "trainer/base/machine.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

TEST(Machine, MemoryLimitIsTheSmallestOfAGroupAndItsAncestors) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const auto limit = [&](const std::string& membership) {
    return cgroup_memory_limit(root, membership);
  };
  fs::create_directories(root / "job/step");
  EXPECT_EQ(limit("0::/job/step\n"), std::nullopt);
  spill(root / "job/step/memory.max", "max\n");
  EXPECT_EQ(limit("0::/job/step\n"), std::nullopt);
  spill(root / "job/memory.max", "4000000\n");
  EXPECT_EQ(limit("0::/job/step\n"), 4000000);
  spill(root / "job/step/memory.max", "3000000\n");
  EXPECT_EQ(limit("0::/job/step\n"), 3000000);
  EXPECT_EQ(limit("0::/job\n"), 4000000);
  // In a container the path is that of the host and does not exist.
  spill(root / "memory.max", "2000000\n");
  EXPECT_EQ(limit("0::/docker/0123\n"), 2000000);
  EXPECT_EQ(limit("0::/\n"), 2000000);
}

TEST(Machine, ReadsMemoryLimitsOfCgroupsVersion1) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  fs::create_directories(root / "memory/slurm");
  spill(root / "memory/slurm/memory.limit_in_bytes", "5000000\n");
  EXPECT_EQ(cgroup_memory_limit(root, "9:cpu,cpuacct:/slurm\n5:memory:/slurm\n"), 5000000);
  EXPECT_EQ(cgroup_memory_limit(root, "9:cpu,cpuacct:/slurm\n"), std::nullopt);
  EXPECT_EQ(cgroup_memory_limit(root, "garbage\n:\n\n"), std::nullopt);
}

TEST(Machine, MemoryLimitIsPositiveAndAtMostTheMemoryOfTheHost) {
  const Machine machine = inspect_machine();
  EXPECT_GT(machine.memory_limit, 0);
  EXPECT_LE(machine.memory_limit, machine.memory);
}

}  // namespace
}  // namespace trireme::train
