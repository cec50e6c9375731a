// Diagnoses of hand-made snapshots of a run on one host.
#include "tests/comm/diagnose_fixture.h"

namespace trireme::comm {
namespace {

TEST_F(DiagnoseTest, FindsNothingInAHealthyRun) { expect_none(); }

TEST_F(DiagnoseTest, AcceptsWaitsBelowTheTimeout) {
  for (int i = 0; i < 3; ++i) wait(i, 9.9);
  enter(3, Phase::kData, 9.95);
  expect_none();
}

TEST_F(DiagnoseTest, AcceptsAnyComputationThatNoRankWaitsFor) {
  for (int i = 0; i < 4; ++i) enter(i, Phase::kForward, 900);
  expect_none();
}

// --- Dead and failed.

TEST_F(DiagnoseTest, ReportsADeadRank) {
  enter(1, Phase::kUpdate, 1);
  die(1, 0.3);
  for (const int i : {0, 2, 3}) wait(i, 0.2);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDead, 1);
  EXPECT_EQ(diagnosis.exit_code, 1);
  EXPECT_EQ(diagnosis.text,
            "rank 1 (host a, pid 801) died in update of step 13: its process was killed, possibly "
            "for lack of memory, or exited without reporting an error");
}

TEST_F(DiagnoseTest, ReportsTheCollectiveOfADeadRank) {
  wait(1, 0.4);
  die(1, 0.3);
  EXPECT_TRUE(expect_diagnosis(Fault::kDead, 1)
                  .text.starts_with("rank 1 (host a, pid 801) died in all-reduce #41, bucket 1 "
                                    "(fc2.weight ... fc1.bias), last phase: forward of step 13"));
}

TEST_F(DiagnoseTest, WaitsForEarlierFailuresToShow) {
  die(2, 0.1);
  expect_none();
}

TEST_F(DiagnoseTest, ReportsTheEarliestFailure) {
  die(3, 0.25);
  fail(2, 0.27, "shard-1.tar: record 5 is cut short", 3);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kFailed, 2);
  EXPECT_EQ(diagnosis.exit_code, 3);
  EXPECT_EQ(diagnosis.text,
            "rank 2 (host a, pid 802) failed in forward of step 13: shard-1.tar: record 5 is cut "
            "short");
}

TEST_F(DiagnoseTest, PrefersADeathToTheFailureOfAPeerThatItCaused) {
  fail(0, 0.35, "all_reduce_sum: rank 1 of this host has ended", 1, /*caused_by_peer=*/true);
  die(1, 0.3);
  expect_diagnosis(Fault::kDead, 1);
}

TEST_F(DiagnoseTest, ReportsACrash) {
  fail(1, 0.31, "crashed with SIGSEGV", 139);
  die(1, 0.3);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kFailed, 1);
  EXPECT_EQ(diagnosis.exit_code, 139);
  EXPECT_NE(diagnosis.text.find("failed in forward of step 13: crashed with SIGSEGV"),
            std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, ReportsAFailureCausedByAPeerIfThereIsNoOther) {
  fail(0, 1.2, "NCCL: unhandled system error", 1, /*caused_by_peer=*/true);
  expect_none();
  fail(0, 1.6, "NCCL: unhandled system error", 1, /*caused_by_peer=*/true);
  expect_diagnosis(Fault::kFailed, 0);
}

TEST_F(DiagnoseTest, AcceptsTheEndOfARankThatHasLeft) {
  enter(1, Phase::kEnd, 0.5);
  die(1, 0.4);
  expect_none();
}

TEST_F(DiagnoseTest, ReportsARankThatHasLeftWhileOthersWaitForIt) {
  enter(1, Phase::kEnd, 0.5);
  die(1, 0.4);
  wait(0, 0.3);
  expect_diagnosis(Fault::kDead, 1);
}

TEST_F(DiagnoseTest, FailureWithoutACodeExitsWithCode1) {
  fail(1, 0.5, "?", 0);
  EXPECT_EQ(expect_diagnosis(Fault::kFailed, 1).exit_code, 1);
}

// --- Suspended.

TEST_F(DiagnoseTest, ReportsASuspendedRankAndTheRanksWaitingForIt) {
  wait(3, 31.2);
  stop(3, 31);
  enter(3, Phase::kData, 31.3);
  for (int i = 0; i < 3; ++i) wait(i, 31, 0);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStopped, 3);
  EXPECT_EQ(diagnosis.text,
            "rank 3 (host a, pid 803) was suspended 31 s ago (SIGSTOP or a debugger) in all-reduce "
            "#41, bucket 1 (fc2.weight ... fc1.bias), last phase: data of step 13; ranks 0, 1 and "
            "2 are waiting for it in all-reduce #41");
}

TEST_F(DiagnoseTest, AcceptsASuspensionBelowTheTimeout) {
  stop(3, 9);
  for (int i = 0; i < 3; ++i) wait(i, 9);
  expect_none();
}

TEST_F(DiagnoseTest, ReportsAMissingHeartbeatOfARankThatIsNotSuspended) {
  stop(3, 11);
  rank(3).state = 'D';
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStopped, 3);
  EXPECT_NE(diagnosis.text.find("has sent no heartbeat for 11 s"), std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, FirstTimeoutAppliesToSuspensionsInTheFirstStep) {
  stop(3, 59);
  rank(3).process_steps = 0;
  for (int i = 0; i < 3; ++i) wait(i, 59);
  expect_none();
  stop(3, 61);
  expect_diagnosis(Fault::kStopped, 3);
}

// A process that was suspended itself does not know how long the others were.
TEST_F(DiagnoseTest, CountsTimeOnlySinceItsOwnProcessIsAwake) {
  stop(3, 31);
  for (int i = 0; i < 3; ++i) wait(i, 31);
  s.awake_since = ago(0.5);
  expect_none();
  s.awake_since = ago(11);
  expect_diagnosis(Fault::kStopped, 3);
}

TEST_F(DiagnoseTest, Timeout0DisablesTheDiagnosis) {
  s.options.timeout = 0;
  stop(3, 900);
  for (int i = 0; i < 3; ++i) wait(i, 900);
  expect_none();
}

// --- Stuck.

TEST_F(DiagnoseTest, ReportsARankThatMakesNoProgressWhileOthersWait) {
  for (const int i : {0, 1, 3}) wait(i, 10.5);
  enter(2, Phase::kData, 12);
  rank(2).detail = "sample 4711 of epoch 2, for which worker 1 waits";
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStuck, 2);
  EXPECT_EQ(diagnosis.text,
            "rank 2 (host a, pid 802) has been stuck in data of step 13 (sample 4711 of epoch 2, "
            "for which worker 1 waits) for 12 s; ranks 0, 1 and 3 are waiting for it in all-reduce "
            "#41, bucket 1 (fc2.weight ... fc1.bias)");
}

TEST_F(DiagnoseTest, ARankIsLateOnlySinceOthersWaitForIt) {
  for (const int i : {0, 1, 3}) wait(i, 5);
  enter(2, Phase::kData, 500);
  expect_none();
}

TEST_F(DiagnoseTest, ARankThatEntersAnotherPhaseIsNotStuck) {
  for (const int i : {0, 1, 3}) wait(i, 30);
  enter(2, Phase::kEvaluation, 5);
  expect_none();
}

TEST_F(DiagnoseTest, ReportsTheRankAtTheEndOfAChainOfWaits) {
  // 0 and 1 wait for 2 and 3; 2 waits for 3 alone.
  wait(0, 20, 1);
  wait(1, 20, 1);
  wait(2, 20, 0);
  rank(0).calls[0].sequence = rank(1).calls[0].sequence = 41;
  enter(3, Phase::kBackward, 20);
  EXPECT_NE(expect_diagnosis(Fault::kStuck, 3).text.find("stuck in backward"), std::string::npos);
}

TEST_F(DiagnoseTest, ReportsTheLatestOfSeveralStuckRanks) {
  wait(0, 20);
  enter(1, Phase::kData, 15);
  enter(2, Phase::kData, 18);
  enter(3, Phase::kData, 2);
  expect_diagnosis(Fault::kStuck, 2);
}

TEST_F(DiagnoseTest, CheckpointTimeoutIsAddedWhileSaving) {
  for (int i = 1; i < 4; ++i) wait(i, 100);
  enter(0, Phase::kCheckpoint, 101);
  expect_none();
  for (int i = 1; i < 4; ++i) rank(i).calls[1].began = ago(111);
  enter(0, Phase::kCheckpoint, 111);
  expect_diagnosis(Fault::kStuck, 0);
  s.options.checkpoint = 0;
  expect_none();
}

TEST_F(DiagnoseTest, FirstTimeoutAppliesToStuckRanksInTheFirstStep) {
  for (int i = 0; i < 3; ++i) wait(i, 30);
  enter(3, Phase::kStart, 40);
  rank(3).process_steps = 0;
  expect_none();
  for (int i = 0; i < 3; ++i) rank(i).calls[1].began = ago(61);
  enter(3, Phase::kStart, 62);
  expect_diagnosis(Fault::kStuck, 3);
}

class AloneTest : public DiagnoseTest {
 protected:
  AloneTest() : DiagnoseTest(1) {}
};

TEST_F(AloneTest, ReportsASingleRankOnlyIfStuckInData) {
  enter(0, Phase::kData, 9);
  expect_none();
  enter(0, Phase::kData, 11);
  EXPECT_EQ(expect_diagnosis(Fault::kStuck, 0).text,
            "rank 0 (host a, pid 800) has been stuck in data of step 13 for 11 s");
  enter(0, Phase::kForward, 1000);
  expect_none();
}

TEST_F(DiagnoseTest, ReportsALivingRankThatHasLeftWhileOthersWait) {
  wait(0, 11);
  for (int i = 1; i < 4; ++i) enter(i, Phase::kEnd, 12);
  for (int i = 1; i < 3; ++i) wait(i, 11);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStuck, 3);
  EXPECT_NE(diagnosis.text.find("stuck in end"), std::string::npos) << diagnosis.text;
}

// Judging by the waits alone, the rank would be reported as stuck a little earlier.
TEST_F(DiagnoseTest, DoesNotReportASuspendedRankAsStuck) {
  for (int i = 0; i < 3; ++i) wait(i, 10.1);
  stop(3, 9.9);
  enter(3, Phase::kData, 10.2);
  expect_none();
  stop(3, 10.1);
  expect_diagnosis(Fault::kStopped, 3);
}

// --- Desync.

TEST_F(DiagnoseTest, ReportsDifferentCollectivesWithTheSameNumber) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6);
  rank(2).calls[1].bytes = 800;
  set_bucket(rank(2).calls[1], 0);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 2);
  EXPECT_EQ(diagnosis.text,
            "mismatched collectives: rank 2 (host a, pid 802) is in all-reduce #41, bucket 0 "
            "(fc3), 800 bytes, in step 13, last phase: forward of step 13, but rank 0 (host a, pid "
            "800) is in all-reduce #41, bucket 1 (fc2.weight ... fc1.bias), 400 bytes, in step 13, "
            "last phase: forward of step 13");
}

TEST_F(DiagnoseTest, ReportsTheSameCollectiveInDifferentSteps) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6);
  rank(3).calls[1].step = 13;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 3);
  EXPECT_NE(diagnosis.text.find("in step 14"), std::string::npos) << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("in step 13"), std::string::npos) << diagnosis.text;
}

TEST_F(DiagnoseTest, ComparesCompletedCollectivesToo) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6).began = 0;
  expect_none();
  rank(1).calls[1].step = 11;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 1);
  EXPECT_NE(diagnosis.text.find("rank 1 (host a, pid 801) was in all-reduce #41"),
            std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, NamesNoRankAtFaultIfTwoRanksDiffer) {
  wait(0, 0.6).operation = "MPI_Bcast";
  wait(1, 0.6);
  expect_diagnosis(Fault::kDesync, -1);
}

TEST_F(DiagnoseTest, AMismatchMustLast) {
  wait(0, 0.6).bytes = 800;
  wait(1, 0.4);
  expect_none();
}

TEST_F(DiagnoseTest, DoesNotCompareSendsWithReceives) {
  wait(0, 5).operation = "MPI_Send";
  wait(1, 5).operation = "MPI_Recv";
  expect_none();
}

TEST_F(DiagnoseTest, ReportsDifferentDtypes) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6).dtype = i == 1 ? DType::kF64 : DType::kF32;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 1);
  EXPECT_NE(diagnosis.text.find("400 bytes of f64, in step 13"), std::string::npos)
      << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("400 bytes of f32, in step 13"), std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, ReportsRanksThatWaitForEachOther) {
  for (const int i : {0, 1, 3}) wait(i, 11, 1);
  wait(2, 10.5, 0);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, -1);
  EXPECT_NE(diagnosis.text.find("rank 0 (host a, pid 800) is in all-reduce #41, bucket 1"),
            std::string::npos)
      << diagnosis.text;
  EXPECT_NE(diagnosis.text.find(", as are ranks 1 and 3"), std::string::npos) << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("rank 2 (host a, pid 802) is in all-reduce #41, 400 bytes"),
            std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, ReportsARankThatSkippedACollective) {
  for (int i = 0; i < 3; ++i) wait(i, 0.6);
  rank(3).step = 13;  // on a GPU, the next step may be in flight
  enter(3, Phase::kForward, 0.01);
  expect_none();
  rank(3).step = 400;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 3);
  EXPECT_NE(diagnosis.text.find("rank 3 (host a, pid 803) is in forward of step 401 but never "
                                "called all-reduce #41, bucket 1"),
            std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, ReportsAMismatchFoundByTheRanksThemselves) {
  fail(1, 0.5, "mismatched collectives: rank 2 is in this, but rank 0 is in that");
  EXPECT_EQ(expect_diagnosis(Fault::kDesync, 1).text,
            "mismatched collectives: rank 2 is in this, but rank 0 is in that");
}

// --- Transport.

TEST_F(DiagnoseTest, ReportsACollectiveThatDoesNotComplete) {
  for (int i = 0; i < 4; ++i) wait(i, 12);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kTransport, -1);
  EXPECT_EQ(diagnosis.text,
            "all 4 ranks have been in all-reduce #41, bucket 1 (fc2.weight ... fc1.bias) for 12 s "
            "without progress: MPI, NCCL or the network is stuck; last phase: forward of step 13");
}

TEST_F(DiagnoseTest, ReportsARankInACollectiveThatOthersHaveCompleted) {
  wait(0, 12);
  for (int i = 1; i < 4; ++i) rank(i).calls[1].sequence = 41;
  wait(1, 11);
  wait(2, 11);
  expect_none();  // rank 3 may still make the next call
  wait(3, 11);
  EXPECT_TRUE(expect_diagnosis(Fault::kTransport, -1)
                  .text.starts_with("rank 0 has been in all-reduce #41"));
}

}  // namespace
}  // namespace trireme::comm
