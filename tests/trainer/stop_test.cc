#include "trainer/stop.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

int g_former = 0;

TEST(StopSignals, OnlySetAFlag) {
  for (int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const StopSignals signals;
    EXPECT_FALSE(signals.requested());
    raise(signal);
    EXPECT_TRUE(signals.requested());
    EXPECT_EQ(signals.signal(), signal);
  }
}

TEST(StopSignals, FormerHandlersComeBack) {
  struct sigaction former {};
  former.sa_handler = [](int) { ++g_former; };
  sigaction(SIGUSR1, &former, nullptr);
  {
    const StopSignals signals;
    raise(SIGUSR1);
    EXPECT_EQ(g_former, 0);
  }
  raise(SIGUSR1);
  EXPECT_EQ(g_former, 1);
}

}  // namespace
}  // namespace trireme
