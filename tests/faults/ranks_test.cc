// A rank that dies, is suspended, crashes, fails or is slow. The others must end within seconds,
// with a diagnosis that names it.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

using namespace std::chrono_literals;

constexpr double kTimeout = 3;  // of kEndlessRun
constexpr double kBound = kTimeout + 5;

class Ranks : public FaultTest {};

TEST_F(Ranks, KilledInForward) {
  expect_same_diagnosis(broken("forward kill rank=1 step=40", 2), kBound, {"rank 1 (", "forward"},
                        {0});
}

TEST_F(Ranks, KilledInAllReduce) {
  expect_same_diagnosis(broken("collective kill rank=2 step=40 index=1", 3), kBound,
                        {"rank 2 (", "all-reduce #", "bucket 1 (fc2.bias ... fc1.weight)"}, {0, 1});
}

TEST_F(Ranks, KilledInAllGatherOfZero) {
  expect_same_diagnosis(
      broken("collective kill rank=2 step=40 index=1", 3, {"--set", "parallel.shard=OPTIMIZER"}),
      kBound, {"rank 2 (", "all-gather #", "bucket 1 (fc2.bias ... fc1.weight)"}, {0, 1});
}

TEST_F(Ranks, KilledInCheckpoint) {
  expect_same_diagnosis(broken("checkpoint kill rank=0 index=240", 2), kBound,
                        {"rank 0 (", "checkpoint"}, {1});
  const Outcome next = run(train({"--set", "train.max_steps=250"}), 2);
  EXPECT_EQ(next.code, 0) << next.error;
}

TEST_F(Ranks, KilledInEvaluation) {
  expect_same_diagnosis(broken("evaluation kill rank=3 step=24 index=20", 4), kBound,
                        {"rank 3 (", "evaluation"}, {0, 1, 2});
}

TEST_F(Ranks, Suspended) {
  expect_same_diagnosis(broken("forward stop rank=1 step=40", 3), kBound + 1,
                        {"rank 1 (", "was suspended", "ranks 0 and 2 are waiting"}, {0, 2});
}

// Returns the state of a process from /proc: 'T' if it is stopped.
char state_of(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? '?' : stat[name_end + 2];
}

pid_t wait_for_stopped(const Program& program) {
  for (int i = 0; i < 1000; ++i) {
    for (const pid_t pid : program.children()) {
      if (state_of(pid) == 'T') return pid;
    }
    std::this_thread::sleep_for(10ms);
  }
  return 0;
}

TEST_F(Ranks, SuspendedAndResumedInTime) {
  Program program(train(), 2, {"TRIREME_INJECT=forward stop rank=1 step=40"});
  const pid_t stopped = wait_for_stopped(program);
  ASSERT_NE(stopped, 0);
  std::this_thread::sleep_for(1500ms);
  kill(stopped, SIGCONT);
  std::this_thread::sleep_for(500ms);
  ASSERT_TRUE(program.running());
  program.signal(SIGUSR1);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 75) << outcome.error;
  EXPECT_FALSE(lines_with(outcome.error + outcome.out, "warning: rank 1 (").empty())
      << outcome.error << outcome.out;
  EXPECT_TRUE(lines_with(outcome.error, "trireme: rank").empty()) << outcome.error;
  EXPECT_GT(losses_of(run_dir()).size(), 41u);
}

TEST_F(Ranks, HangsInAPhase) {
  expect_same_diagnosis(broken("forward sleep rank=1 step=40", 2), kBound + 1,
                        {"rank 1 (", "forward"}, {0, 1});
}

// The diagnosis must name the crash of rank 1, not the errors that it causes on the others.
TEST_F(Ranks, SegmentationFault) {
  const Outcome outcome = broken("forward segv rank=1 step=40", 3);
  expect_same_diagnosis(outcome, kBound, {"rank 1 (", "SIGSEGV", "forward"}, {0, 2});
}

TEST_F(Ranks, Abort) {
  expect_same_diagnosis(broken("update abort rank=1 step=40", 3), kBound, {"rank 1 (", "SIGABRT"},
                        {0, 2});
}

TEST_F(Ranks, UncaughtException) {
  expect_same_diagnosis(broken("update throw rank=2 step=40", 3), kBound,
                        {"rank 2 (", "injected at update"}, {0, 1});
}

TEST_F(Ranks, ExceptionInACollective) {
  expect_same_diagnosis(broken("collective throw rank=1 step=40 index=0", 2), kBound,
                        {"rank 1 (", "injected at collective"}, {0, 1});
}

TEST_F(Ranks, ExitsWithoutReportingAnError) {
  expect_same_diagnosis(broken("forward exit rank=1 step=40", 2), kBound, {"rank 1 ("}, {0});
}

// No rank is late here, but all are ten times slower than usual at first.
TEST_F(Ranks, SlowFirstStepsCauseNoWarning) {
  const Outcome outcome =
      broken("forward sleep rank=1 times=8 seconds=0.4", 2, {"--set", "train.max_steps=400"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ((outcome.error + outcome.out).find("slow"), std::string::npos)
      << outcome.error << outcome.out;
}

TEST_F(Ranks, StragglerIsReported) {
  const Outcome outcome =
      broken("forward sleep rank=1 times=0 seconds=0.02", 3, {"--set", "train.max_steps=420"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_FALSE(lines_with(outcome.error + outcome.out, "warning: rank 1 (").empty())
      << outcome.error << outcome.out;
  EXPECT_TRUE(lines_with(outcome.error + outcome.out, "warning: rank 0 (").empty());
  EXPECT_TRUE(lines_with(outcome.error + outcome.out, "warning: rank 2 (").empty());
}

// The abort hangs on all ranks; a kernel timer must end them.
TEST_F(Ranks, EndsEvenIfTheAbortHangs) {
  const Outcome outcome = broken("update throw rank=1 step=40; abort sleep times=0", 2);
  expect_same_diagnosis(outcome, kBound + 5, {"rank 1 ("}, {0, 1});
  EXPECT_EQ(outcome.code, 128 + SIGKILL) << outcome.error;
}

}  // namespace
}  // namespace trireme::testing
