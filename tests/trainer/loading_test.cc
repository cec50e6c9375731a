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

}  // namespace
}  // namespace trireme::train
