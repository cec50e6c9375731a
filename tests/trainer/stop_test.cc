#include "trainer/run/stop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "core/error.h"

namespace trireme::train {
namespace {

TEST(StopSignals, OnlySetAFlag) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const StopSignals stop;
    EXPECT_FALSE(stop.requested());
    raise(signal);
    raise(SIGTERM);
    EXPECT_TRUE(stop.requested());
    EXPECT_EQ(stop.signal(), signal);
  }
}

TEST(StopSignals, DoNoHarmOnceTheEndIsDecided) {
  { const StopSignals stop; }
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) raise(signal);
}

TEST(StopSignals, AreFollowedByRanksThatGotNone) {
  StopSignals stop;
  stop.follow();
  EXPECT_TRUE(stop.requested());
}

// Without a signal there is no deadline.
TEST(StopSignals, EndInTimeWhenAllGoesWell) {
  const auto start = std::chrono::steady_clock::now();
  { const StopSignals stop(3600); }
  {
    const StopSignals stop(3600);
    raise(SIGTERM);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(StopSignalsDeathTest, DeadlineEndsWhatHangs) {
  const auto hang = [](bool told_by_another) {
    StopSignals stop(0.05);
    stop.at_deadline([](double grace) { std::fprintf(stderr, "late after %g s", grace); });
    told_by_another ? stop.follow() : static_cast<void>(raise(SIGUSR1));
    for (;;) pause();
  };
  constexpr int kResumable = static_cast<int>(ExitCode::kResumable);
  EXPECT_EXIT(hang(false), ::testing::ExitedWithCode(kResumable), "late after 0.05 s");
  EXPECT_EXIT(hang(true), ::testing::ExitedWithCode(kResumable), "late after 0.05 s");
}

}  // namespace
}  // namespace trireme::train
