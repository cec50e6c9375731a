// Diagnoses of ranks on several hosts.
#include "tests/comm/diagnose_fixture.h"

namespace trireme::comm {
namespace {

class HostsTest : public DiagnoseTest {
 protected:
  HostsTest() : DiagnoseTest(4, 2) {}
  // Sets the time of the latest message from the other host.
  void last_heard(double seconds_ago) {
    s.hosts[1].heard = ago(seconds_ago);
    for (int i = 2; i < 4; ++i) {
      RankView& view = rank(i);
      const int64_t back = view.seen - ago(seconds_ago);
      for (int64_t* time : {&view.seen, &view.heartbeat, &view.since}) *time -= back;
    }
  }
};

TEST_F(HostsTest, NamesTheHostOfARankAtFault) {
  for (const int i : {0, 1, 2}) wait(i, 12);
  enter(3, Phase::kData, 13);
  EXPECT_TRUE(expect_diagnosis(Fault::kStuck, 3)
                  .text.starts_with("rank 3 (host b, pid 803) has been stuck"));
}

TEST_F(HostsTest, ReportsAHostWhoseConnectionsAreAllClosed) {
  last_heard(0.8);
  s.hosts[1].closed = ago(0.7);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kHostLost, 2);
  EXPECT_EQ(diagnosis.text,
            "host b (ranks 2 and 3) is lost: all connections to it closed 0.7 s ago; rank 2 (host "
            "b, pid 802) was last seen in forward of step 13");
}

TEST_F(HostsTest, WaitsForAFailureThatExplainsClosedConnections) {
  s.hosts[1].closed = ago(0.3);
  expect_none();
  die(0, 0.3);
  expect_diagnosis(Fault::kDead, 0);
}

TEST_F(HostsTest, AcceptsClosedConnectionsToAHostThatHasLeft) {
  for (int i = 2; i < 4; ++i) enter(i, Phase::kEnd, 1);
  s.hosts[1].closed = ago(0.7);
  expect_none();
}

TEST_F(HostsTest, ReportsASilentHostAsUnreachable) {
  last_heard(9);
  expect_none();
  last_heard(10.1);
  const Diagnosis diagnosis = expect_diagnosis(Fault::kUnreachable, 2);
  EXPECT_EQ(diagnosis.text,
            "host b (ranks 2 and 3) is unreachable: no message from it for 10 s; rank 2 (host b, "
            "pid 802) was last seen in forward of step 13");
}

// According to the outdated views, the ranks of the other host would be stuck.
TEST_F(HostsTest, DoesNotReportRanksAsStuckByOutdatedViews) {
  for (int i = 0; i < 2; ++i) wait(i, 9.5);
  last_heard(9.6);
  expect_none();
  for (int i = 0; i < 2; ++i) rank(i).calls[1].began = ago(10.1);
  expect_diagnosis(Fault::kUnreachable, 2);
}

TEST_F(HostsTest, HalfTheTimeoutOfSilenceIsEnoughOnceAWaitIsOverdue) {
  for (int i = 0; i < 4; ++i) wait(i, 10.1);
  last_heard(4);
  expect_none();
  last_heard(5.1);
  expect_diagnosis(Fault::kUnreachable, 2);
}

TEST_F(HostsTest, ReportsALocalRankEvenWhileTheOtherHostIsSilent) {
  last_heard(3);
  wait(0, 10.5);
  enter(1, Phase::kData, 11);
  expect_diagnosis(Fault::kStuck, 1);
}

}  // namespace
}  // namespace trireme::comm
