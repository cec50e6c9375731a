#include "core/control_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainer/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using train::spill;
using train::TemporaryFolder;

TEST(ControlGroups, TheSmallestMemoryLimitOfAGroupAndItsAncestorsCounts) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const auto limit = [&](const std::string& membership) {
    return ControlGroups(root, membership).memory_limit();
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

TEST(ControlGroups, ReadsMemoryLimitsOfVersion1) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const auto limit = [&](const std::string& membership) {
    return ControlGroups(root, membership).memory_limit();
  };
  fs::create_directories(root / "memory/slurm");
  spill(root / "memory/slurm/memory.limit_in_bytes", "5000000\n");
  EXPECT_EQ(limit("9:cpu,cpuacct:/slurm\n5:memory:/slurm\n"), 5000000);
  EXPECT_EQ(limit("9:cpu,cpuacct:/slurm\n"), std::nullopt);
  EXPECT_EQ(limit("garbage\n:\n\n"), std::nullopt);
}

class CpuQuota : public testing::Test {
 protected:
  // Returns the cores of all quotas, sorted.
  std::vector<double> cores(const std::string& membership) const {
    std::vector<double> found;
    for (const auto& quota : quotas(membership)) found.push_back(quota.cores);
    std::ranges::sort(found);
    return found;
  }
  std::vector<ControlGroups::CpuQuota> quotas(const std::string& membership) const {
    return ControlGroups(root_, membership).cpu_quotas();
  }

  const TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

// docker run --cpus writes cpu.max of version 2, and two files of version 1.
TEST_F(CpuQuota, IsReadFromAGroupAndItsAncestors) {
  using Cores = std::vector<double>;
  fs::create_directories(root_ / "pod/container");
  spill(root_ / "pod/cpu.max", "max 100000\n");
  EXPECT_EQ(cores("0::/pod/container\n"), Cores());
  spill(root_ / "pod/container/cpu.max", "250000 100000\n");
  EXPECT_EQ(cores("0::/pod/container\n"), Cores({2.5}));
  spill(root_ / "pod/cpu.max", "50000 50000\n");
  EXPECT_EQ(cores("0::/pod/container\n"), Cores({1, 2.5}));
  spill(root_ / "cpu.max", "400000 100000\n");
  EXPECT_EQ(cores("0::/pod\n"), Cores({1, 4}));
  EXPECT_EQ(cores("0::/docker/0123\n"), Cores({4})) << "the path of the host";
  for (const char* damaged : {"", "100000", "100000 0", "-1 100000", "x y"}) {
    spill(root_ / "cpu.max", damaged);
    EXPECT_EQ(cores("0::/\n"), Cores()) << damaged;
  }
}

TEST_F(CpuQuota, IsReadFromVersion1) {
  using Cores = std::vector<double>;
  const auto write = [&](const fs::path& group, const char* quota) {
    fs::create_directories(root_ / group);
    spill(root_ / group / "cpu.cfs_quota_us", quota);
    spill(root_ / group / "cpu.cfs_period_us", "100000\n");
  };
  write("cpu,cpuacct", "-1\n");
  write("cpu,cpuacct/docker/a", "150000\n");
  const std::string mounted_together = "5:memory:/docker/a\n9:cpu,cpuacct:/docker/a\n";
  EXPECT_EQ(cores(mounted_together), Cores({1.5}));
  write("cpu,cpuacct/docker", "800000\n");
  EXPECT_EQ(cores(mounted_together), Cores({1.5, 8}));
  write("cpu/docker/a", "300000\n");  // Also mounted by itself.
  EXPECT_EQ(cores(mounted_together), Cores({3}));
  EXPECT_EQ(cores("2:cpuacct:/docker/a\n"), Cores());
}

// Two processes of one container share its quota; those of others have the same path in theirs.
TEST_F(CpuQuota, NamesTheGroupInAllContainers) {
  fs::create_directories(root_ / "a");
  fs::create_directories(root_ / "b");
  spill(root_ / "a/cpu.max", "100000 100000\n");
  spill(root_ / "b/cpu.max", "100000 100000\n");
  EXPECT_EQ(quotas("0::/a\n")[0].group, ControlGroups(root_ / "a", "0::/\n").cpu_quotas()[0].group);
  EXPECT_NE(quotas("0::/a\n")[0].group, quotas("0::/b\n")[0].group);
}

TEST(ControlGroups, UsableCoresAreAtMostTheQuota) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), std::max(1.0, min_cpu_quota().value_or(1e9)));
}

}  // namespace
}  // namespace trireme
