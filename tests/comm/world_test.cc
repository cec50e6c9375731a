// If a rank ends, all must end, with an exit code and a message that say why. A hang shows as the
// test's timeout.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "tests/build_tree.h"

namespace {

struct Outcome {
  int code;
  std::string output;
};

Outcome run(int ranks, const std::string& ending) {
  const std::string program = trireme::testing::build_tree() / "tests" / "comm_world_program";
  const std::string command = "mpirun -np " + std::to_string(ranks) +
                              " --oversubscribe --bind-to none " + program + " " + ending + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> chunk;
  while (const size_t read = std::fread(chunk.data(), 1, chunk.size(), pipe)) {
    output.append(chunk.data(), read);
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

bool contains(const Outcome& outcome, const std::string& text) {
  return outcome.output.find(text) != std::string::npos;
}

TEST(WorldTest, EndsWell) {
  for (int ranks : {1, 2, 4}) {
    const Outcome outcome = run(ranks, "well");
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome, "summed on " + std::to_string(ranks))) << outcome.output;
  }
}

TEST(WorldTest, AgreedErrorDeterminesTheExitCode) {
  const Outcome outcome = run(3, "agreed");
  EXPECT_EQ(outcome.code, 3) << outcome.output;
  EXPECT_TRUE(contains(outcome, "rank 1: shard-1.tar: record 5 is cut short")) << outcome.output;
}

TEST(WorldTest, FailureOfOneRankEndsAllRanks) {
  const Outcome outcome = run(3, "throw");
  EXPECT_EQ(outcome.code, 3) << outcome.output;
  EXPECT_TRUE(contains(outcome, "shard-1.tar: record 5 is cut short")) << outcome.output;
  EXPECT_TRUE(contains(outcome, "trireme: rank 1 (host ")) << outcome.output;
  EXPECT_FALSE(contains(outcome, "rank 0 (")) << outcome.output;
}

TEST(WorldTest, KilledRankEndsAllRanks) {
  const Outcome outcome = run(3, "kill");
  EXPECT_NE(outcome.code, 0) << outcome.output;
  EXPECT_FALSE(contains(outcome, "summed")) << outcome.output;
  EXPECT_TRUE(contains(outcome, "died in ")) << outcome.output;
}

TEST(WorldTest, ExitOfOneRankEndsAllRanks) {
  const Outcome outcome = run(3, "exit");
  EXPECT_NE(outcome.code, 0) << outcome.output;
  EXPECT_FALSE(contains(outcome, "summed")) << outcome.output;
  EXPECT_TRUE(contains(outcome, "died in ")) << outcome.output;
}

TEST(WorldTest, MismatchedCollectivesEndAllRanks) {
  const Outcome outcome = run(3, "mismatch");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_TRUE(contains(outcome, "mismatched collectives")) << outcome.output;
}

TEST(WorldTest, MissingFinalizeFails) {
  const Outcome outcome = run(2, "forget");
  EXPECT_NE(outcome.code, 0) << outcome.output;
}

}  // namespace
