#include "trainer/run/stop_signals.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "core/error.h"

namespace trireme::train {
namespace {

TEST(StopSignals, SetAFlag) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    const StopSignals stop;
    EXPECT_FALSE(stop.requested());
    raise(signal);
    raise(SIGTERM);
    EXPECT_TRUE(stop.requested());
    EXPECT_EQ(stop.signal(), signal);
  }
}

TEST(StopSignals, AreIgnoredAfterDestruction) {
  { const StopSignals stop; }
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) raise(signal);
}

TEST(StopSignals, LeaveHangupIgnoredUnderNohup) {
  signal(SIGHUP, SIG_IGN);
  const StopSignals stop;
  raise(SIGHUP);
  EXPECT_FALSE(stop.requested());
}

TEST(StopSignals, CanBeRequestedByAPeer) {
  StopSignals stop;
  stop.request_by_peer();
  EXPECT_TRUE(stop.requested());
}

// The deadline only counts from a signal, and does not delay destruction.
TEST(StopSignals, DestructionDoesNotWaitForTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  { const StopSignals stop(3600); }
  {
    const StopSignals stop(3600);
    raise(SIGTERM);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(StopSignalsDeathTest, DeadlineEndsAHangingProcess) {
  const auto hang = [](bool by_peer) {
    StopSignals stop(0.05);
    stop.on_deadline([](double grace) {
      std::fprintf(stderr, "late after %g s", grace);
      return ExitCode::kResumable;
    });
    by_peer ? stop.request_by_peer() : static_cast<void>(raise(SIGUSR1));
    for (;;) pause();
  };
  constexpr int kResumable = static_cast<int>(ExitCode::kResumable);
  EXPECT_EXIT(hang(false), ::testing::ExitedWithCode(kResumable), "late after 0.05 s");
  EXPECT_EXIT(hang(true), ::testing::ExitedWithCode(kResumable), "late after 0.05 s");
}

// Exit code 75 would promise that something was saved.
TEST(StopSignalsDeathTest, DeadlineBeforeTheRunBeginsIsAFailure) {
  const auto hang = [] {
    const StopSignals stop(0.05);
    raise(SIGTERM);
    for (;;) pause();
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(static_cast<int>(ExitCode::kFailure)),
              "nothing is saved");
}

}  // namespace
}  // namespace trireme::train
