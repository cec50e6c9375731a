#include "comm/watchdog/warnings.h"

#include <string>
#include <vector>

#include "tests/comm/diagnose_fixture.h"

namespace trireme::comm {
namespace {

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
  for (RankView& view : s.ranks) view.process_steps = 0;
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
  EXPECT_TRUE(warnings.update(s).empty());
  s.now += kSecond / 4;
  EXPECT_TRUE(warnings.update(s).empty());
  rank(1).heartbeat = ago(-0.3);
  rank(1).state = 0;
  const auto told = warnings.update(s);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0],
            "rank 1 (host a, pid 801) was stopped for 1.3 s and goes on, in forward of step 13");
  EXPECT_TRUE(warnings.update(s).empty());
}

TEST_F(WarningsTest, OfAStoppedRank0TheNextTells) {
  s.own_rank = 1;
  stop(0, 1.0);
  warnings.update(s);
  rank(0).heartbeat = s.now;
  rank(0).state = 0;
  EXPECT_EQ(warnings.update(s).size(), 1u);
}

}  // namespace
}  // namespace trireme::comm
