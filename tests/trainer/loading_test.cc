#include "trainer/config/loading.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "step_fixture.h"
#include "tests/comm/ranks.h"
#include "trainer/config/device.h"

namespace trireme::train {
namespace {

Config config(const std::vector<std::string>& assignments) {
  return parse_config(kStepConfig, "test", assignments);
}

TEST(Loading, ThreadsAreAsConfiguredOrDependOnTheSamples) {
  EXPECT_EQ(loader_threads(config({"data.threads=3"}), /*in_memory=*/true, 5), 3);
  EXPECT_EQ(loader_threads(config({"data.threads=0"}), /*in_memory=*/false, 5), 0);
  EXPECT_EQ(loader_threads(config({}), /*in_memory=*/true, 5), 0)
      << "copying from memory needs no threads";
  EXPECT_EQ(loader_threads(config({}), /*in_memory=*/false, 5), 5);
  EXPECT_EQ(loader_threads(config({"data.mix.mixup_alpha=1"}), /*in_memory=*/true, 5), 5);
}

TEST(Loading, WithoutThreadsOneBatchIsBuffered) {
  EXPECT_EQ(batches_in_memory(config({"data.prefetch=6"}), 0), 1);
  EXPECT_EQ(batches_in_memory(config({"data.prefetch=6"}), 2), 6);
}

TEST(Loading, SpareCoresExcludeThoseOfTheComputation) {
  const auto world = test::join();
  const auto cpu = create_cpu_device(1);
  const int with_one = spare_cores(config({"train.threads=1"}), *world, *cpu);
  EXPECT_GE(with_one, 1);
  EXPECT_LE(with_one, 64);
  EXPECT_EQ(spare_cores(config({"train.threads=4096"}), *world, *cpu), 1) << "at least one";
}

TEST(Loading, PlannedRanksShareTheCores) {
  const auto world = test::join();
  unsetenv("OMP_NUM_THREADS");
  const int all = default_threads(*world);
  EXPECT_GE(all, 1);
  EXPECT_EQ(default_threads(*world, 2), std::max(1, all / 2));
  EXPECT_EQ(default_threads(*world, kMaxThreads), 1);
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(default_threads(*world, 2), 3) << "of each rank";
  unsetenv("OMP_NUM_THREADS");
}

// A core, and the CPU quota of a control group, is divided among the ranks that may use it.
TEST(Loading, RanksShareCoresAndQuotas) {
  using Ranks = std::vector<RankCores>;
  const auto share = [](const Ranks& ranks, size_t rank) {
    return static_cast<int>(share_of_cores(ranks, rank));
  };
  const std::string all(64, '1');
  EXPECT_EQ(share({{all, {}}}, 0), 64);
  EXPECT_EQ(share({{all, {{"container", 2}}}}, 0), 2) << "docker run --cpus 2";
  EXPECT_EQ(share({{"0100", {{"container", 2}}}}, 0), 1) << "the affinity mask";
  const Ranks together(3, {all, {{"container", 6}}});
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(share(together, rank), 2);
  // The quota of a pod holds for both of its containers.
  const Ranks nested = {{all, {{"pod", 10}, {"a", 8}}}, {all, {{"pod", 10}, {"b", 3}}}, {all, {}}};
  EXPECT_EQ(share(nested, 0), 5);
  EXPECT_EQ(share(nested, 1), 3);
  EXPECT_EQ(share(nested, 2), 21);
  EXPECT_NEAR(share_of_cores({{all, {{"container", 0.5}}}}, 0), 0.5, 1e-5);
}

}  // namespace
}  // namespace trireme::train
