#include "comm/watchdog/warnings.h"

#include <string>
#include <vector>

#include "tests/comm/diagnose_fixture.h"

namespace trireme::comm {
namespace {

class WarningsTest : public DiagnoseTest {
 protected:
  // Runs steps of 100 ms. Ranks other than `slow` wait for it in a fraction `waiting` of each step.
  // Returns the warnings.
  std::vector<std::string> run(double seconds, int slow, double waiting) {
    std::vector<std::string> all;
    for (int i = 0; i < static_cast<int>(seconds * 10); ++i) {
      s.now += kSecond / 10;
      for (int number = 0; number < std::ssize(s.ranks); ++number) {
        RankView& view = rank(number);
        view.heartbeat = view.seen = s.now;
        ++view.process_steps;
        view.step_ns += kSecond / 10;
        view.waiting_ns += static_cast<int64_t>(number == slow ? 1e6 : 1e6 + waiting * 1e8);
      }
      for (std::string& each : warnings.update(s)) all.push_back(std::move(each));
    }
    return all;
  }
  Warnings warnings;
};

TEST_F(WarningsTest, ReportsASlowRankOnceWithItsLag) {
  const auto reported = run(11, 2, 0.6);
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(
      reported[0],
      "rank 2 (host a, pid 802) is slow: the other ranks wait for it 60.0 ms per step (60% of "
      "the time), measured over 50 steps");
}

TEST_F(WarningsTest, DoesNotReportASlightlySlowerRank) { EXPECT_TRUE(run(20, 2, 0.4).empty()); }

TEST_F(WarningsTest, RepeatsTheWarningAtIncreasingIntervals) {
  EXPECT_EQ(run(59, 2, 0.6).size(), 1u);
  EXPECT_EQ(run(10, 2, 0.6).size(), 1u);
  EXPECT_EQ(run(100, 2, 0.6).size(), 0u);
  EXPECT_EQ(run(30, 2, 0.6).size(), 1u);
}

TEST_F(WarningsTest, IgnoresTheFirstSteps) {
  for (RankView& view : s.ranks) view.process_steps = 0;
  // Slow for 10 steps, then as fast as the others.
  EXPECT_TRUE(run(1, 2, 0.99).empty());
  EXPECT_TRUE(run(20, 2, 0).empty());
}

TEST_F(WarningsTest, OnlyRank0Reports) {
  s.own_rank = 1;
  EXPECT_TRUE(run(20, 2, 0.6).empty());
}

TEST_F(WarningsTest, ReportsASuspensionThatHasEnded) {
  stop(1, 1.0);
  EXPECT_TRUE(warnings.update(s).empty());
  s.now += kSecond / 4;
  EXPECT_TRUE(warnings.update(s).empty());
  rank(1).heartbeat = ago(-0.3);
  rank(1).state = 0;
  const auto reported = warnings.update(s);
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(reported[0],
            "rank 1 (host a, pid 801) was suspended for 1.3 s and has resumed, in forward of step "
            "13");
  EXPECT_TRUE(warnings.update(s).empty());
}

TEST_F(WarningsTest, Rank1ReportsASuspensionOfRank0) {
  s.own_rank = 1;
  stop(0, 1.0);
  warnings.update(s);
  rank(0).heartbeat = s.now;
  rank(0).state = 0;
  EXPECT_EQ(warnings.update(s).size(), 1u);
}

}  // namespace
}  // namespace trireme::comm
