// Snapshots made by hand, and what the watchdog makes of them.
#include "comm/watchdog/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/watchdog/warnings.h"

namespace trireme::comm {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1000 * kSecond;

// Four ranks, in step 13, of which each was seen just now; timeouts of 10 s, 60 s at first.
class DiagnoseTest : public testing::Test {
 protected:
  explicit DiagnoseTest(int ranks = 4, int hosts = 1) {
    s.now = kNow;
    s.tick = kSecond / 4;
    s.awake_since = 1;
    s.options = {
        .timeout = 10, .first_timeout = 60, .checkpoint = 100, .straggler = 0.5, .log = {}};
    s.bucket_names = {"fc3", "fc2.weight ... fc1.bias"};
    s.hosts.resize(static_cast<size_t>(hosts));
    for (HostView& host : s.hosts) host.heard = kNow;
    for (int i = 0; i < ranks; ++i) {
      const int host = i * hosts / ranks;
      s.members.push_back({host, std::string(1, static_cast<char>('a' + host)), 800 + i, 1});
      RankView& view = s.ranks.emplace_back();
      view.rank = i;
      view.seen = view.heartbeat = kNow;
      view.step = 12;
      view.steps_here = 12;
      enter(i, Phase::kForward, 0.1);
      // Two groups of all ranks.
      for (uint64_t group = Group::kWorld; group < 3; ++group) {
        CallView& call = view.calls.emplace_back();
        call.sequence = 40;
        call.group = group;
      }
    }
  }

  RankView& rank(int number) { return s.ranks[static_cast<size_t>(number)]; }
  static int64_t ago(double seconds) { return kNow - static_cast<int64_t>(seconds * 1e9); }

  void enter(int number, Phase phase, double seconds_ago) {
    rank(number).phase = phase;
    rank(number).since = ago(seconds_ago);
  }
  // The rank is in the next collective of one of its groups.
  CallView& wait(int number, double seconds_ago, size_t index = 1) {
    CallView& call = rank(number).calls[index];
    ++call.sequence;
    call.began = ago(seconds_ago);
    call.step = 12;
    call.bytes = 400;
    call.bucket = index == 1 ? 1 : -1;
    call.operation = "all_reduce_sum";
    return call;
  }
  void die(int number, double seconds_ago) { rank(number).ended = ago(seconds_ago); }
  void fail(int number, double seconds_ago, const std::string& message, int code = 1,
            bool from_a_peer = false) {
    rank(number).failed = ago(seconds_ago);
    rank(number).failure = message;
    rank(number).exit_code = code;
    rank(number).from_a_peer = from_a_peer;
  }
  void stop(int number, double seconds_ago) {
    rank(number).heartbeat = ago(seconds_ago);
    rank(number).state = 'T';
  }

  // What is found, which all ranks must find alike.
  Diagnosis expect_diagnosis(Fault fault, int rank_at_fault) {
    const auto diagnosis = diagnose(s);
    EXPECT_TRUE(diagnosis);
    if (!diagnosis) return {};
    EXPECT_EQ(diagnosis->fault, fault) << diagnosis->text;
    EXPECT_EQ(diagnosis->rank_at_fault, rank_at_fault) << diagnosis->text;
    EXPECT_EQ(diagnosis->text.find('\n'), std::string::npos) << diagnosis->text;
    for (int other = 0; other < std::ssize(s.ranks); ++other) {
      RunSnapshot seen_by_other = s;
      seen_by_other.own_rank = other;
      if (s.members[static_cast<size_t>(other)].host != s.members[0].host) continue;
      const auto same = diagnose(seen_by_other);
      EXPECT_TRUE(same && same->text == diagnosis->text) << "rank " << other;
    }
    return *diagnosis;
  }
  void expect_none() {
    const auto diagnosis = diagnose(s);
    EXPECT_FALSE(diagnosis) << diagnosis->text;
  }

  RunSnapshot s;
};

TEST_F(DiagnoseTest, NothingIsWrong) { expect_none(); }

TEST_F(DiagnoseTest, AnyWaitBelowTheTimeoutIsFine) {
  for (int i = 0; i < 3; ++i) wait(i, 9.9);
  enter(3, Phase::kData, 9.95);
  expect_none();
}

TEST_F(DiagnoseTest, AComputationWithoutAnyoneWaitingMayTakeForEver) {
  for (int i = 0; i < 4; ++i) enter(i, Phase::kForward, 900);
  expect_none();
}

// --- Dead and failed.

TEST_F(DiagnoseTest, ADeadRankIsNamed) {
  enter(1, Phase::kUpdate, 1);
  die(1, 0.3);
  for (const int i : {0, 2, 3}) wait(i, 0.2);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDead, 1);
  EXPECT_EQ(diagnosis.exit_code, 1);
  EXPECT_EQ(diagnosis.text,
            "rank 1 (host a, pid 801) died in update of step 13: its process ended without a word "
            "(killed, perhaps for lack of memory, or it exited)");
}

TEST_F(DiagnoseTest, ADeadRankIsToldWithItsCollective) {
  wait(1, 0.4);
  die(1, 0.3);
  EXPECT_TRUE(expect_diagnosis(Fault::kDead, 1)
                  .text.starts_with("rank 1 (host a, pid 801) died in all-reduce #41, bucket 1 "
                                    "(fc2.weight ... fc1.bias), last phase: forward of step 13"));
}

TEST_F(DiagnoseTest, ACauseIsGivenTimeToShow) {
  die(2, 0.1);
  expect_none();
}

TEST_F(DiagnoseTest, TheEarliestCauseWins) {
  die(3, 0.25);
  fail(2, 0.27, "shard-1.tar: record 5 is cut short", 3);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kFailed, 2);
  EXPECT_EQ(diagnosis.exit_code, 3);
  EXPECT_EQ(diagnosis.text,
            "rank 2 (host a, pid 802) failed in forward of step 13: shard-1.tar: record 5 is cut "
            "short");
}

TEST_F(DiagnoseTest, WhatTheEndOfARankLooksLikeElsewhereIsNoCause) {
  fail(0, 0.35, "all_reduce_sum: rank 1 of this host has ended", 1, /*from_a_peer=*/true);
  die(1, 0.3);
  expect_diagnosis(Fault::kDead, 1);
}

TEST_F(DiagnoseTest, ACrashIsWhatItSays) {
  fail(1, 0.31, "crashed with SIGSEGV", 139);
  die(1, 0.3);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kFailed, 1);
  EXPECT_EQ(diagnosis.exit_code, 139);
  EXPECT_NE(diagnosis.text.find("failed in forward of step 13: crashed with SIGSEGV"),
            std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, WithoutACauseTheConsequenceIsToldLater) {
  fail(0, 1.2, "NCCL: unhandled system error", 1, /*from_a_peer=*/true);
  expect_none();
  fail(0, 1.6, "NCCL: unhandled system error", 1, /*from_a_peer=*/true);
  expect_diagnosis(Fault::kFailed, 0);
}

TEST_F(DiagnoseTest, GoodbyeIsNoDeath) {
  enter(1, Phase::kEnd, 0.5);
  die(1, 0.4);
  expect_none();
}

TEST_F(DiagnoseTest, GoodbyeDoesNotHelpWhereOthersStillWait) {
  enter(1, Phase::kEnd, 0.5);
  die(1, 0.4);
  wait(0, 0.3);
  expect_diagnosis(Fault::kDead, 1);
}

TEST_F(DiagnoseTest, AFailureWithoutACodeIsStillOne) {
  fail(1, 0.5, "?", 0);
  EXPECT_EQ(expect_diagnosis(Fault::kFailed, 1).exit_code, 1);
}

// --- Stopped.

TEST_F(DiagnoseTest, AStoppedRankIsNamedWithWhatTheOthersWaitIn) {
  wait(3, 31.2);
  stop(3, 31);
  enter(3, Phase::kData, 31.3);
  for (int i = 0; i < 3; ++i) wait(i, 31, 0);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStopped, 3);
  EXPECT_EQ(diagnosis.text,
            "rank 3 (host a, pid 803) stopped 31 s ago in all-reduce #41, bucket 1 (fc2.weight ... "
            "fc1.bias), last phase: data of step 13; ranks 0, 1 and 2 wait for it in all-reduce "
            "#41");
}

TEST_F(DiagnoseTest, StoppedForLessThanTheTimeoutIsNoFault) {
  stop(3, 9);
  for (int i = 0; i < 3; ++i) wait(i, 9);
  expect_none();
}

TEST_F(DiagnoseTest, SilenceIsNotCalledAStopUnlessItIsOne) {
  stop(3, 11);
  rank(3).state = 'D';
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStopped, 3);
  EXPECT_NE(diagnosis.text.find("has given no sign of life for 11 s"), std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, TheFirstStepMayTakeLonger) {
  stop(3, 59);
  rank(3).steps_here = 0;
  for (int i = 0; i < 3; ++i) wait(i, 59);
  expect_none();
  stop(3, 61);
  expect_diagnosis(Fault::kStopped, 3);
}

// Whoever has slept itself cannot tell how long the others have.
TEST_F(DiagnoseTest, TimeIsCountedFromWhereTheWatchdogIsAwake) {
  stop(3, 31);
  for (int i = 0; i < 3; ++i) wait(i, 31);
  s.awake_since = ago(0.5);
  expect_none();
  s.awake_since = ago(11);
  expect_diagnosis(Fault::kStopped, 3);
}

TEST_F(DiagnoseTest, NoTimeoutMeansNever) {
  s.options.timeout = 0;
  stop(3, 900);
  for (int i = 0; i < 3; ++i) wait(i, 900);
  expect_none();
}

// --- Stuck.

TEST_F(DiagnoseTest, ARankThatDoesNotComeIsStuck) {
  for (const int i : {0, 1, 3}) wait(i, 10.5);
  enter(2, Phase::kData, 12);
  rank(2).detail = "sample 4711 of epoch 2, for which worker 1 waits";
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStuck, 2);
  EXPECT_EQ(diagnosis.text,
            "rank 2 (host a, pid 802) is stuck in data of step 13 (sample 4711 of epoch 2, for "
            "which worker 1 waits), which it entered 12 s ago; ranks 0, 1 and 3 wait for it in "
            "all-reduce #41, bucket 1 (fc2.weight ... fc1.bias)");
}

TEST_F(DiagnoseTest, ItHasNotWaitedLongerThanTheOthers) {
  for (const int i : {0, 1, 3}) wait(i, 5);
  enter(2, Phase::kData, 500);
  expect_none();
}

TEST_F(DiagnoseTest, WhoGoesOnIsNotStuck) {
  for (const int i : {0, 1, 3}) wait(i, 30);
  enter(2, Phase::kEvaluation, 5);
  expect_none();
}

TEST_F(DiagnoseTest, TheOneAtTheRootIsNamed) {
  // 0 and 1 wait for 2 and 3; 2 waits for 3 alone.
  wait(0, 20, 1);
  wait(1, 20, 1);
  wait(2, 20, 0);
  rank(0).calls[0].sequence = rank(1).calls[0].sequence = 41;
  enter(3, Phase::kBackward, 20);
  EXPECT_NE(expect_diagnosis(Fault::kStuck, 3).text.find("is stuck in backward"),
            std::string::npos);
}

TEST_F(DiagnoseTest, OfSeveralTheOneThatIsLatest) {
  wait(0, 20);
  enter(1, Phase::kData, 15);
  enter(2, Phase::kData, 18);
  enter(3, Phase::kData, 2);
  expect_diagnosis(Fault::kStuck, 2);
}

TEST_F(DiagnoseTest, SavingHasALimitOfItsOwn) {
  for (int i = 1; i < 4; ++i) wait(i, 100);
  enter(0, Phase::kCheckpoint, 101);
  expect_none();
  for (int i = 1; i < 4; ++i) rank(i).calls[1].began = ago(111);
  enter(0, Phase::kCheckpoint, 111);
  expect_diagnosis(Fault::kStuck, 0);
  s.options.checkpoint = 0;
  expect_none();
}

TEST_F(DiagnoseTest, BeforeItsFirstStepARankHasTime) {
  for (int i = 0; i < 3; ++i) wait(i, 30);
  enter(3, Phase::kStart, 40);
  rank(3).steps_here = 0;
  expect_none();
  for (int i = 0; i < 3; ++i) rank(i).calls[1].began = ago(61);
  enter(3, Phase::kStart, 62);
  expect_diagnosis(Fault::kStuck, 3);
}

class AloneTest : public DiagnoseTest {
 protected:
  AloneTest() : DiagnoseTest(1) {}
};

TEST_F(AloneTest, OnlyItsSamplesCanKeepItWaiting) {
  enter(0, Phase::kData, 9);
  expect_none();
  enter(0, Phase::kData, 11);
  EXPECT_EQ(expect_diagnosis(Fault::kStuck, 0).text,
            "rank 0 (host a, pid 800) is stuck in data of step 13, which it entered 11 s ago");
  enter(0, Phase::kForward, 1000);
  expect_none();
}

TEST_F(DiagnoseTest, ARankThatHasLeftWhileOthersWaitIsStuckToo) {
  wait(0, 11);
  for (int i = 1; i < 4; ++i) enter(i, Phase::kEnd, 12);
  for (int i = 1; i < 3; ++i) wait(i, 11);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStuck, 3);
  EXPECT_NE(diagnosis.text.find("stuck in end"), std::string::npos) << diagnosis.text;
}

// What is stopped is said to be so, even if by the waits it would be stuck a little earlier.
TEST_F(DiagnoseTest, AStoppedRankIsNotCalledStuck) {
  for (int i = 0; i < 3; ++i) wait(i, 10.1);
  stop(3, 9.9);
  enter(3, Phase::kData, 10.2);
  expect_none();
  stop(3, 10.1);
  expect_diagnosis(Fault::kStopped, 3);
}

// --- Desync.

TEST_F(DiagnoseTest, DifferentCollectivesUnderOneNumber) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6);
  rank(2).calls[1].bytes = 800;
  rank(2).calls[1].bucket = 0;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 2);
  EXPECT_EQ(diagnosis.text,
            "the ranks disagree: rank 2 (host a, pid 802) is in all-reduce #41, bucket 0 (fc3), "
            "800 bytes, in step 13, last phase: forward of step 13, but rank 0 (host a, pid 800) "
            "is in all-reduce #41, bucket 1 (fc2.weight ... fc1.bias), 400 bytes, in step 13, last "
            "phase: forward of step 13");
}

TEST_F(DiagnoseTest, TheSameCollectiveInDifferentSteps) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6);
  rank(3).calls[1].step = 13;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 3);
  EXPECT_NE(diagnosis.text.find("in step 14"), std::string::npos) << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("in step 13"), std::string::npos) << diagnosis.text;
}

TEST_F(DiagnoseTest, WhatIsDoneIsComparedToo) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6).began = 0;
  expect_none();
  rank(1).calls[1].step = 11;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 1);
  EXPECT_NE(diagnosis.text.find("rank 1 (host a, pid 801) was in all-reduce #41"),
            std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, OfTwoNobodyIsToBlame) {
  wait(0, 0.6).operation = "MPI_Bcast";
  wait(1, 0.6);
  expect_diagnosis(Fault::kDesync, -1);
}

TEST_F(DiagnoseTest, ADisagreementMustLast) {
  wait(0, 0.6).bytes = 800;
  wait(1, 0.4);
  expect_none();
}

TEST_F(DiagnoseTest, SenderAndReceiverDoDifferentThings) {
  wait(0, 5).operation = "MPI_Send";
  wait(1, 5).operation = "MPI_Recv";
  expect_none();
}

TEST_F(DiagnoseTest, TheSameBytesAsAnotherType) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6).dtype = i == 1 ? DType::kF64 : DType::kF32;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 1);
  EXPECT_NE(diagnosis.text.find("400 bytes of f64, in step 13"), std::string::npos)
      << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("400 bytes of f32, in step 13"), std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, RanksThatWaitForEachOther) {
  for (const int i : {0, 1, 3}) wait(i, 11, 1);
  wait(2, 10.5, 0);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, -1);
  EXPECT_NE(diagnosis.text.find("rank 0 (host a, pid 800) is in all-reduce #41, bucket 1"),
            std::string::npos)
      << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("and so are ranks 1 and 3"), std::string::npos) << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("rank 2 (host a, pid 802) is in all-reduce #41, 400 bytes"),
            std::string::npos)
      << diagnosis.text;
}

TEST_F(DiagnoseTest, ARankThatRunsAheadWithoutTheOthers) {
  for (int i = 0; i < 3; ++i) wait(i, 0.6);
  rank(3).step = 13;  // the next one may be under way on a GPU
  enter(3, Phase::kForward, 0.01);
  expect_none();
  rank(3).step = 400;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 3);
  EXPECT_NE(diagnosis.text.find("rank 3 (host a, pid 803) is in forward of step 401 without having "
                                "come to all-reduce #41, bucket 1"),
            std::string::npos)
      << diagnosis.text;
}

// --- Groups.

// Ranks 0 and 1, 1 and 2, 2 and 3 have a group each, besides the two of all.
class GroupsTest : public DiagnoseTest {
 protected:
  GroupsTest() {
    for (int i = 0; i < 3; ++i) {
      for (const int member : {i, i + 1}) {
        CallView& call = rank(member).calls.emplace_back();
        call.group = static_cast<uint64_t>(100 + i);
        call.group_name = name_ranks({i, i + 1});
        call.sequence = 7;
      }
    }
  }
  // The next collective of the group of a rank and the one behind it.
  CallView& wait_in_pair(int number, int pair, double seconds_ago) {
    return wait(number, seconds_ago, pair == number && number > 0 ? 3 : 2);
  }
};

TEST_F(GroupsTest, OfDifferentGroupsNothingIsCompared) {
  // All are in the eighth collective of some pair: different ones, in different steps, at one place
  // of their ledgers.
  wait_in_pair(0, 0, 5).bytes = 8;
  wait_in_pair(1, 0, 5).bytes = 8;
  wait_in_pair(2, 2, 5).bytes = 800;
  wait_in_pair(3, 2, 5).bytes = 800;
  rank(2).calls[3].step = rank(3).calls[2].step = 13;
  expect_none();
}

TEST_F(GroupsTest, AGroupMayBeFarAheadOfAnother) {
  for (const int i : {0, 1}) rank(i).calls[2].sequence = 5000;
  for (int i = 0; i < 4; ++i) wait(i, 5);
  wait_in_pair(2, 1, 5);  // rank 1 comes later
  expect_none();
}

TEST_F(GroupsTest, WhoIsNoMemberIsNotWaitedFor) {
  wait_in_pair(0, 0, 10.5);
  enter(1, Phase::kData, 11);
  enter(3, Phase::kData, 500);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStuck, 1);
  EXPECT_EQ(diagnosis.text,
            "rank 1 (host a, pid 801) is stuck in data of step 13, which it entered 11 s ago; rank "
            "0 waits for it in all-reduce #8 of ranks 0 and 1");
}

TEST_F(GroupsTest, TheOneAtTheEndOfAChainOfGroupsIsNamed) {
  wait_in_pair(0, 0, 20);
  wait_in_pair(1, 1, 20);
  wait_in_pair(2, 2, 20);
  enter(3, Phase::kBackward, 21);
  expect_diagnosis(Fault::kStuck, 3);
}

TEST_F(GroupsTest, ADisagreementInOneOfThemIsFound) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6);
  wait_in_pair(1, 1, 0.7).bucket = 0;
  wait_in_pair(2, 1, 0.7).bucket = 1;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, -1);
  EXPECT_EQ(diagnosis.text,
            "the ranks disagree: rank 2 (host a, pid 802) is in all-reduce #8 of ranks 1 and 2, "
            "bucket 1 (fc2.weight ... fc1.bias), 400 bytes, in step 13, last phase: forward of "
            "step 13, but rank 1 (host a, pid 801) is in all-reduce #8 of ranks 1 and 2, bucket 0 "
            "(fc3), 400 bytes, in step 13, last phase: forward of step 13");
}

TEST_F(GroupsTest, OrdersThatDoNotFitAreFound) {
  // 0 waits for 1 for 2 for 3, who waits for all.
  wait_in_pair(0, 0, 11);
  wait_in_pair(1, 1, 11);
  wait_in_pair(2, 2, 11);
  wait(3, 11);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, -1);
  EXPECT_TRUE(diagnosis.text.starts_with("the ranks disagree: each waits for another; "))
      << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("rank 1 (host a, pid 801) is in all-reduce #8 of ranks 1 and 2"),
            std::string::npos)
      << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("rank 3 (host a, pid 803) is in all-reduce #41, bucket 1"),
            std::string::npos)
      << diagnosis.text;
}

TEST_F(GroupsTest, ThoseOfAGroupInWhichNothingMovesAreNamed) {
  wait_in_pair(1, 1, 12);
  wait_in_pair(2, 1, 12);
  EXPECT_TRUE(expect_diagnosis(Fault::kTransport, -1)
                  .text.starts_with("ranks 1 and 2 are in all-reduce #8 of ranks 1 and 2"));
}

TEST_F(GroupsTest, AMemberThatHasGoneAheadIsNamed) {
  wait_in_pair(0, 0, 0.6);
  rank(1).step = 400;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 1);
  EXPECT_NE(diagnosis.text.find("without having come to all-reduce #8 of ranks 0 and 1"),
            std::string::npos)
      << diagnosis.text;
}

// Who takes no part in a transfer does not see it.
TEST_F(GroupsTest, TransfersBetweenTwoOfAGroupDoNotCount) {
  for (const int i : {0, 1}) {
    rank(i).calls[1].transfers = 5;
    rank(i).calls[1].operation = i == 0 ? "MPI_Send" : "MPI_Recv";
  }
  for (const int i : {2, 3}) wait(i, 5);
  expect_none();
  for (const int i : {0, 1}) wait(i, 5);
  expect_none();
}

TEST_F(GroupsTest, ARankWhoseLedgerIsNotThereYetIsInTheWorldAlone) {
  rank(1).calls.clear();
  wait_in_pair(0, 0, 10.5);  // no member but itself is known
  wait(2, 10.5, 0);
  enter(1, Phase::kStart, 11);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStuck, 1);
  EXPECT_TRUE(diagnosis.text.ends_with("; rank 2 waits for it in all-reduce #41"))
      << diagnosis.text;
}

// --- What the ranks find out themselves.

TEST_F(DiagnoseTest, WhatTheRanksThemselvesHaveFoundIsTakenAsItIs) {
  fail(1, 0.5, "the ranks disagree: rank 2 is in this, but rank 0 is in that");
  EXPECT_EQ(expect_diagnosis(Fault::kDesync, 1).text,
            "the ranks disagree: rank 2 is in this, but rank 0 is in that");
}

// --- Transport.

TEST_F(DiagnoseTest, AllInTheSameAndNothingMoves) {
  for (int i = 0; i < 4; ++i) wait(i, 12);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kTransport, -1);
  EXPECT_EQ(diagnosis.text,
            "all 4 ranks are in all-reduce #41, bucket 1 (fc2.weight ... fc1.bias), and have been "
            "for 12 s, without anything moving: MPI, NCCL or the network is stuck; last phase: "
            "forward of step 13");
}

TEST_F(DiagnoseTest, ARankThatDoesNotComeOutOfWhatOthersHaveLeft) {
  wait(0, 12);
  for (int i = 1; i < 4; ++i) rank(i).calls[1].sequence = 41;
  wait(1, 11);
  wait(2, 11);
  expect_none();  // rank 3 may still come
  wait(3, 11);
  EXPECT_TRUE(
      expect_diagnosis(Fault::kTransport, -1).text.starts_with("rank 0 is in all-reduce #41"));
}

// --- Several hosts.

class HostsTest : public DiagnoseTest {
 protected:
  HostsTest() : DiagnoseTest(4, 2) {}
  // The latest that is known of the other host.
  void last_heard(double seconds_ago) {
    s.hosts[1].heard = ago(seconds_ago);
    for (int i = 2; i < 4; ++i) {
      RankView& view = rank(i);
      const int64_t back = view.seen - ago(seconds_ago);
      for (int64_t* time : {&view.seen, &view.heartbeat, &view.since}) *time -= back;
    }
  }
};

TEST_F(HostsTest, ARankOfAnotherHostIsNamedWithIt) {
  for (const int i : {0, 1, 2}) wait(i, 12);
  enter(3, Phase::kData, 13);
  EXPECT_TRUE(
      expect_diagnosis(Fault::kStuck, 3).text.starts_with("rank 3 (host b, pid 803) is stuck"));
}

TEST_F(HostsTest, AHostWhoseConnectionsAreAllClosedIsLost) {
  last_heard(0.8);
  s.hosts[1].closed = ago(0.7);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kHostLost, 2);
  EXPECT_EQ(diagnosis.text,
            "host b (ranks 2 and 3) is lost: all connections to it were closed 0.7 s ago; rank 2 "
            "(host b, pid 802) was last in forward of step 13");
}

TEST_F(HostsTest, ClosedConnectionsAreGivenTimeToBeExplained) {
  s.hosts[1].closed = ago(0.3);
  expect_none();
  die(0, 0.3);
  expect_diagnosis(Fault::kDead, 0);
}

TEST_F(HostsTest, AHostThatHasSaidGoodbyeIsNotLost) {
  for (int i = 2; i < 4; ++i) enter(i, Phase::kEnd, 1);
  s.hosts[1].closed = ago(0.7);
  expect_none();
}

TEST_F(HostsTest, AHostThatSaysNothingIsUnreachable) {
  last_heard(9);
  expect_none();
  last_heard(10.1);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kUnreachable, 2);
  EXPECT_EQ(diagnosis.text,
            "host b (ranks 2 and 3) is unreachable: nothing has come from it for 10 s; rank 2 "
            "(host b, pid 802) was last in forward of step 13");
}

// By the old news from there its ranks would be stuck.
TEST_F(HostsTest, NobodyIsCalledStuckByOldNews) {
  for (int i = 0; i < 2; ++i) wait(i, 9.5);
  last_heard(9.6);
  expect_none();
  for (int i = 0; i < 2; ++i) rank(i).calls[1].began = ago(10.1);
  expect_diagnosis(Fault::kUnreachable, 2);
}

TEST_F(HostsTest, SilenceOfSecondsIsEnoughOnceOthersWaitForTooLong) {
  for (int i = 0; i < 4; ++i) wait(i, 10.1);
  last_heard(4);
  expect_none();
  last_heard(5.1);
  expect_diagnosis(Fault::kUnreachable, 2);
}

TEST_F(HostsTest, ALocalRankIsNamedEvenWhileTheOtherHostIsSilent) {
  last_heard(3);
  wait(0, 10.5);
  enter(1, Phase::kData, 11);
  expect_diagnosis(Fault::kStuck, 1);
}

// --- Warnings.

class WarningsTest : public DiagnoseTest {
 protected:
  // So many seconds in steps of 100 ms, of which the ranks other than `slow` wait for it.
  std::vector<std::string> run(double seconds, int slow, double waiting) {
    std::vector<std::string> all;
    for (int i = 0; i < static_cast<int>(seconds * 10); ++i) {
      s.now += kSecond / 10;
      for (int number = 0; number < std::ssize(s.ranks); ++number) {
        RankView& view = rank(number);
        view.heartbeat = view.seen = s.now;
        ++view.steps_here;
        view.step_ns += kSecond / 10;
        view.waiting_ns += static_cast<int64_t>(number == slow ? 1e6 : 1e6 + waiting * 1e8);
      }
      for (std::string& each : warnings.look(s)) all.push_back(std::move(each));
    }
    return all;
  }
  Warnings warnings;
};

TEST_F(WarningsTest, ASlowRankIsNamedOnceWithItsLag) {
  const auto told = run(11, 2, 0.6);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0],
            "rank 2 (host a, pid 802) is slow: the other ranks wait 60.0 ms of each step for it "
            "(60%), over 50 steps");
}

TEST_F(WarningsTest, ALittleSlowerIsNotWorthAWord) { EXPECT_TRUE(run(20, 2, 0.4).empty()); }

TEST_F(WarningsTest, ItIsToldAgainRarely) {
  EXPECT_EQ(run(59, 2, 0.6).size(), 1u);
  EXPECT_EQ(run(10, 2, 0.6).size(), 1u);
  EXPECT_EQ(run(100, 2, 0.6).size(), 0u);
  EXPECT_EQ(run(30, 2, 0.6).size(), 1u);
}

TEST_F(WarningsTest, TheFirstStepsDoNotCount) {
  for (RankView& view : s.ranks) view.steps_here = 0;
  // Slow for 10 steps, then as the others.
  EXPECT_TRUE(run(1, 2, 0.99).empty());
  EXPECT_TRUE(run(20, 2, 0).empty());
}

TEST_F(WarningsTest, OnlyOneRankTells) {
  s.own_rank = 1;
  EXPECT_TRUE(run(20, 2, 0.6).empty());
}

TEST_F(WarningsTest, AStopThatEndsIsTold) {
  stop(1, 1.0);
  EXPECT_TRUE(warnings.look(s).empty());
  s.now += kSecond / 4;
  EXPECT_TRUE(warnings.look(s).empty());
  rank(1).heartbeat = ago(-0.3);
  rank(1).state = 0;
  const auto told = warnings.look(s);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0],
            "rank 1 (host a, pid 801) was stopped for 1.3 s and goes on, in forward of step 13");
  EXPECT_TRUE(warnings.look(s).empty());
}

TEST_F(WarningsTest, OfAStoppedRank0TheNextTells) {
  s.own_rank = 1;
  stop(0, 1.0);
  warnings.look(s);
  rank(0).heartbeat = s.now;
  rank(0).state = 0;
  EXPECT_EQ(warnings.look(s).size(), 1u);
}

}  // namespace
}  // namespace trireme::comm
