// Faults of runs with 2 pipeline stages of 2 replicas each. Diagnoses name the stage and the
// replica.
#include <signal.h>

#include <filesystem>

#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kTimeout = 3;  // of kEndlessRun
constexpr double kBound = kTimeout + 5;
constexpr int kRanks = 4;

class Stages : public FaultTest {
 protected:
  void SetUp() override {
    config_ = write_config(std::string(kEndlessRun) + "parallel { stages: 2 }\n");
  }
  void expect_end(const std::string& faults, const std::vector<std::string>& fragments,
                  const std::vector<int>& logs, double bound = kBound) {
    SCOPED_TRACE(faults);
    fs::remove_all(run_dir());
    expect_same_diagnosis(broken(faults, kRanks), bound, fragments, logs);
  }
};

TEST_F(Stages, Killed) {
  expect_end("forward kill rank=3 step=40", {"rank 3 (stage 1, replica 1, host ", "forward"},
             {0, 1, 2});
  expect_end("collective kill rank=0 step=40 index=0",
             {"rank 0 (stage 0, replica 0, host ", "all-reduce #", "bucket 0 ("}, {1, 2, 3});
  expect_end("evaluation kill rank=2 step=24 index=20",
             {"rank 2 (stage 1, replica 0, host ", "evaluation"}, {0, 1, 3});
}

TEST_F(Stages, Suspended) {
  expect_end("forward stop rank=1 step=40",
             {"rank 1 (stage 0, replica 1, host ", "was suspended", "waiting for it in receive #"},
             {0, 2, 3});
}

// The rank receives ahead while it hangs, and the others wait for it in receives and sums.
TEST_F(Stages, HangsInAPass) {
  expect_end("forward sleep rank=2 step=40",
             {"rank 2 (stage 1, replica 0, host ", "has been stuck in forward of step 41",
              "waiting for it in "},
             {0, 1, 3});
  expect_end("update sleep rank=0 step=40",
             {"rank 0 (stage 0, replica 0, host ", "has been stuck in update of step 41"},
             {1, 2, 3});
}

TEST_F(Stages, Crashes) {
  expect_end("update segv rank=3 step=40", {"rank 3 (stage 1, replica 1, host ", "SIGSEGV"},
             {0, 1, 2});
  expect_end("update throw rank=1 step=40",
             {"rank 1 (stage 0, replica 1, host ", "injected at update"}, {0, 2, 3});
}

TEST_F(Stages, NanIsNamed) {
  const Outcome outcome = broken("gradients nan rank=3 step=20 index=16 times=0", kRanks);
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.error;
  EXPECT_EQ(lines_with(outcome.error, "step 21: rank 3 (stage 1, replica 1): gradient of '").size(),
            1u)
      << outcome.error;
  expect_none_left();
}

TEST_F(Stages, FlippedBitIsNamed) {
  const Outcome outcome = broken("parameters flip rank=2 step=17", kRanks,
                                 {"--set", "checks.parameter_checksum_every_steps=6"});
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.error;
  EXPECT_EQ(lines_with(outcome.error, "ranks 2 (stage 1, replica 0), 3 (stage 1, replica 1) differ")
                .size(),
            1u)
      << outcome.error;
}

TEST_F(Stages, SlowStageIsReported) {
  const Outcome outcome = broken("forward sleep rank=3 times=0 seconds=0.004", kRanks,
                                 {"--set", "train.max_steps=260"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  const std::string all = outcome.error + outcome.out;
  EXPECT_FALSE(lines_with(all, "warning: rank 3 (stage 1, replica 1, host ").empty()) << all;
  EXPECT_TRUE(lines_with(all, "warning: rank 0 (").empty()) << all;
}

// A signal to one rank, while another is held up in each phase: all save, and the run resumes.
TEST_F(Stages, StopsAndResumesAfterASignalInAnyPhase) {
  for (const std::string place : {"step", "forward", "update", "evaluation", "checkpoint"}) {
    SCOPED_TRACE(place);
    const fs::path reached = scratch_ / ("reached-" + place);
    Program program(
        train(), kRanks,
        {"TRIREME_INJECT=" + place + " sleep rank=3 seconds=0.4 once=" + reached.string()});
    ASSERT_TRUE(wait_for(reached, 30));
    const std::vector<pid_t> ranks = program.children();
    ASSERT_EQ(ranks.size(), size_t{kRanks});
    kill(ranks[1], SIGTERM);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, 75) << outcome.error;
    EXPECT_EQ(lines_with(outcome.out, "stopped by a signal and saved").size(), 1u) << outcome.out;
  }
  const Outcome next = run(train({"--set", "train.max_steps=300"}), kRanks);
  EXPECT_EQ(next.code, 0) << next.error;
  EXPECT_EQ(losses_of(run_dir()).size(), 300u);
  expect_none_left();
}

// A save on rank 0 gathers the parts of all stages. A kill in it leaves the checkpoint before.
TEST_F(Stages, ASaveThatIsKilledLosesNoCheckpoint) {
  for (const std::string place : {"checkpoint kill rank=3 index=120", "write kill rank=0 index=120",
                                  "checkpoint kill rank=0 index=120"}) {
    SCOPED_TRACE(place);
    fs::remove_all(run_dir());
    ASSERT_EQ(run(train({"--set", "train.max_steps=60"}), kRanks).code, 0);
    const Outcome outcome = broken(place, kRanks);
    EXPECT_NE(outcome.code, 0);
    EXPECT_LT(outcome.seconds, kBound);
    ASSERT_TRUE(fs::exists(run_dir() / "checkpoints" / "step-00000060"));
    const Outcome next = run(train({"--set", "train.max_steps=130"}), kRanks);
    EXPECT_EQ(next.code, 0) << next.error;
    EXPECT_NE(next.out.find("(step 60,"), std::string::npos) << next.out;
  }
}

}  // namespace
}  // namespace trireme::testing
