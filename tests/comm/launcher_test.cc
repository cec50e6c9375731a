#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"

namespace trireme::comm {
namespace {

using Variables = std::vector<std::pair<const char*, const char*>>;

// Detects the launcher with these variables and no others that a launcher sets.
Launcher detect_with(const Variables& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_SIZE",
                           "PMI_RANK", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS",
                           "SLURM_NTASKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_NUM_NODES"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  return detect_launcher();
}

TEST(LauncherTest, None) {
  const Launcher launcher = detect_with({});
  EXPECT_EQ(launcher.name, "none");
  EXPECT_EQ(launcher.ranks, 1);
}

TEST(LauncherTest, Mpirun) {
  const Launcher launcher = detect_with(
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"PMIX_RANK", "1"}});
  EXPECT_EQ(launcher.name, "mpirun");
  EXPECT_EQ(launcher.ranks, 4);
  EXPECT_TRUE(launcher.pmix);
}

TEST(LauncherTest, KnowsWhetherAllRanksAreOnOneHost) {
  EXPECT_TRUE(
      detect_with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}).one_host);
  EXPECT_FALSE(
      detect_with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}).one_host);
  EXPECT_FALSE(detect_with({{"OMPI_COMM_WORLD_SIZE", "4"}}).one_host);
  const auto step = [](const char* nodes) {
    return detect_with({{"SLURM_PROCID", "1"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NUM_TASKS", "3"},
                        {"SLURM_STEP_NUM_NODES", nodes}});
  };
  EXPECT_TRUE(step("1").one_host);
  EXPECT_FALSE(step("2").one_host);
}

TEST(LauncherTest, SrunWithPmix) {
  const Launcher launcher = detect_with({{"SLURM_PROCID", "1"},
                                         {"SLURM_STEP_ID", "0"},
                                         {"SLURM_STEP_NUM_TASKS", "3"},
                                         {"PMIX_RANK", "1"}});
  EXPECT_EQ(launcher.name, "srun");
  EXPECT_EQ(launcher.ranks, 3);
  EXPECT_TRUE(launcher.pmix);
}

TEST(LauncherTest, SrunWithoutPmix) {
  const Launcher launcher =
      detect_with({{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "3"}});
  EXPECT_EQ(launcher.ranks, 3);
  EXPECT_FALSE(launcher.pmix);
}

TEST(LauncherTest, IgnoresSlurmOutsideOfAStep) {
  EXPECT_EQ(detect_with({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).ranks, 1);
  EXPECT_EQ(detect_with({{"SLURM_NTASKS", "8"}}).ranks, 1);
}

TEST(LauncherTest, MpirunInABatchScript) {
  const Launcher launcher = detect_with({{"SLURM_NTASKS", "8"},
                                         {"SLURM_PROCID", "0"},
                                         {"SLURM_STEP_ID", "0"},
                                         {"SLURM_STEP_NUM_TASKS", "1"},
                                         {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(launcher.name, "mpirun");
  EXPECT_EQ(launcher.ranks, 2);
}

TEST(LauncherTest, AnotherMpi) {
  const Launcher launcher = detect_with({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});
  EXPECT_EQ(launcher.name, "mpiexec");
  EXPECT_EQ(launcher.ranks, 2);
}

TEST(WorldTest, IsALocalRankWithoutLauncher) {
  detect_with({});
  World world;
  EXPECT_EQ(world.communicator().size(), 1);
  world.finalize();
}

TEST(WorldTest, RefusesRanksThatMpiCannotConnect) {
  for (const Variables& variables :
       {Variables{{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}},
        Variables{{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "3"}}}) {
    const Launcher launcher = detect_with(variables);
    try {
      World world;
      FAIL() << launcher.name << " was accepted";
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(launcher.name + " started"), std::string::npos) << message;
      if (launcher.name == "srun") {
        EXPECT_NE(message.find("srun --mpi=pmix"), std::string::npos) << message;
      }
    }
  }
}

TEST(MpiVersionTest, NamesTheLibrary) {
  EXPECT_NE(mpi_version().find("MPI"), std::string::npos) << mpi_version();
}

}  // namespace
}  // namespace trireme::comm
