// Diagnoses of ranks that are in several process groups.
#include "tests/comm/diagnose_fixture.h"

namespace trireme::comm {
namespace {

// Ranks 0 and 1, 1 and 2, and 2 and 3 form a group each, besides the two groups of all ranks.
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
  // Puts the rank into the next collective of the group of ranks `pair` and `pair` + 1.
  CallView& wait_in_pair(int number, int pair, double seconds_ago) {
    return wait(number, seconds_ago, pair == number && number > 0 ? 3 : 2);
  }
};

TEST_F(GroupsTest, DoesNotCompareDifferentGroups) {
  // All are in the eighth collective of their pair, with different sizes and steps, in the same
  // entry of their ledgers.
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
  wait_in_pair(2, 1, 5);  // rank 1 has not called it yet
  expect_none();
}

TEST_F(GroupsTest, ReportsOnlyMembersAsMissing) {
  wait_in_pair(0, 0, 10.5);
  enter(1, Phase::kData, 11);
  enter(3, Phase::kData, 500);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStuck, 1);
  EXPECT_EQ(diagnosis.text,
            "rank 1 (host a, pid 801) has been stuck in data of step 13 for 11 s; rank 0 is "
            "waiting for it in all-reduce #8 of ranks 0 and 1");
}

TEST_F(GroupsTest, ReportsTheRankAtTheEndOfAChainOfGroups) {
  wait_in_pair(0, 0, 20);
  wait_in_pair(1, 1, 20);
  wait_in_pair(2, 2, 20);
  enter(3, Phase::kBackward, 21);
  expect_diagnosis(Fault::kStuck, 3);
}

TEST_F(GroupsTest, ReportsAMismatchInAGroup) {
  for (int i = 0; i < 4; ++i) wait(i, 0.6);
  set_bucket(wait_in_pair(1, 1, 0.7), 0);
  set_bucket(wait_in_pair(2, 1, 0.7), 1);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, -1);
  EXPECT_EQ(diagnosis.text,
            "mismatched collectives: rank 2 (host a, pid 802) is in all-reduce #8 of ranks 1 and "
            "2, bucket 1 (fc2.weight ... fc1.bias), 400 bytes, in step 13, last phase: forward of "
            "step 13, but rank 1 (host a, pid 801) is in all-reduce #8 of ranks 1 and 2, bucket 0 "
            "(fc3), 400 bytes, in step 13, last phase: forward of step 13");
}

TEST_F(GroupsTest, ReportsIncompatibleOrdersOfCollectives) {
  // Rank 0 waits for 1, 1 for 2, 2 for 3, and 3 for all.
  wait_in_pair(0, 0, 11);
  wait_in_pair(1, 1, 11);
  wait_in_pair(2, 2, 11);
  wait(3, 11);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, -1);
  EXPECT_TRUE(diagnosis.text.starts_with("mismatched collectives: the ranks wait for each other; "))
      << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("rank 1 (host a, pid 801) is in all-reduce #8 of ranks 1 and 2"),
            std::string::npos)
      << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("rank 3 (host a, pid 803) is in all-reduce #41, bucket 1"),
            std::string::npos)
      << diagnosis.text;
}

TEST_F(GroupsTest, NamesTheRanksOfAGroupWithoutProgress) {
  wait_in_pair(1, 1, 12);
  wait_in_pair(2, 1, 12);
  EXPECT_TRUE(expect_diagnosis(Fault::kTransport, -1)
                  .text.starts_with("ranks 1 and 2 have been in all-reduce #8 of ranks 1 and 2"));
}

TEST_F(GroupsTest, ReportsAMemberThatSkippedACollective) {
  wait_in_pair(0, 0, 0.6);
  rank(1).step = 400;
  const Diagnosis diagnosis = expect_diagnosis(Fault::kDesync, 1);
  EXPECT_NE(diagnosis.text.find("but never called all-reduce #8 of ranks 0 and 1"),
            std::string::npos)
      << diagnosis.text;
}

// Ranks that take no part in a transfer do not count it.
TEST_F(GroupsTest, IgnoresTransfersBetweenTwoMembers) {
  for (const int i : {0, 1}) {
    rank(i).calls[1].transfers = 5;
    rank(i).calls[1].operation = i == 0 ? "MPI_Send" : "MPI_Recv";
  }
  for (const int i : {2, 3}) wait(i, 5);
  expect_none();
  for (const int i : {0, 1}) wait(i, 5);
  expect_none();
}

// Each pair of ranks is two adjacent pipeline stages. Ranks receive ahead, in the background.
class StagesTest : public GroupsTest {
 protected:
  StagesTest() {
    for (int i = 0; i < 4; ++i) s.roles.push_back("stage " + std::to_string(i) + ", replica 0");
  }
  CallView& transfer(int number, int pair, const char* operation, double seconds_ago) {
    CallView& call = rank(number).calls[pair == number && number > 0 ? 3 : 2];
    call.operation = operation;
    ++call.transfers;
    if (seconds_ago > 0) call.began = ago(seconds_ago);
    return call;
  }
  void await(int number, int pair, double seconds_ago) {
    transfer(number, pair, "MPI_Recv", seconds_ago);
    rank(number).awaits_transfer = true;
  }
};

TEST_F(StagesTest, ReportsTheStageThatOthersWaitFor) {
  await(0, 0, 11);
  await(2, 1, 11);
  await(3, 2, 11);
  // Stage 1 has stopped in its forward pass, in which it receives ahead.
  transfer(1, 1, "MPI_Recv", 12);
  ++rank(2).calls[2].transfers;
  enter(1, Phase::kForward, 11);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStuck, 1);
  EXPECT_EQ(diagnosis.text,
            "rank 1 (stage 1, replica 0, host a, pid 801) has been stuck in forward of step 13 for "
            "11 s; rank 0 is waiting for it in receive #1 of ranks 0 and 1; rank 2 is waiting for "
            "it in receive #2 of ranks 1 and 2");
}

TEST_F(StagesTest, ReportsTransfersWithoutProgress) {
  await(0, 0, 11);
  transfer(1, 0, "MPI_Send", 11);
  rank(1).awaits_transfer = true;
  EXPECT_TRUE(expect_diagnosis(Fault::kTransport, -1)
                  .text.starts_with("ranks 0 and 1 have been in receive #1 of ranks 0 and 1"));
}

// Sends and sums overlap. What a rank died in may be either.
TEST_F(StagesTest, NamesAllCallsOfADeadRank) {
  wait(1, 0.4);
  transfer(1, 1, "MPI_Send", 0.6);
  die(1, 0.3);
  EXPECT_TRUE(expect_diagnosis(Fault::kDead, 1)
                  .text.starts_with("rank 1 (stage 1, replica 0, host a, pid 801) died in send #1 "
                                    "of ranks 1 and 2 and all-reduce #41, bucket 1 (fc2.weight ... "
                                    "fc1.bias), last phase: forward of step 13"));
}

TEST_F(StagesTest, AStageMayComputeForLongWhileItReceivesAhead) {
  transfer(0, 0, "MPI_Recv", 300);
  for (const int member : {0, 1}) {  // the other direction
    CallView& call = rank(member).calls.emplace_back();
    call.group = 200;
    if (member == 0) continue;
    call.operation = "MPI_Recv";
    call.transfers = 1;
    call.began = ago(8);
    rank(member).awaits_transfer = true;
  }
  enter(0, Phase::kForward, 8);
  expect_none();
}

TEST_F(GroupsTest, TreatsARankWithoutLedgerEntriesAsAMemberOfTheWorldOnly) {
  rank(1).calls.clear();
  wait_in_pair(0, 0, 10.5);  // it is the only known member
  wait(2, 10.5, 0);
  enter(1, Phase::kStart, 11);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kStuck, 1);
  EXPECT_TRUE(diagnosis.text.ends_with("; rank 2 is waiting for it in all-reduce #41"))
      << diagnosis.text;
}

}  // namespace
}  // namespace trireme::comm
