// Signal handlers on computing threads must run on their alternate stacks.
#include "core/signal_stack.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <signal.h>

#include <atomic>
#include <vector>

#include "core/device.h"

namespace trireme {
namespace {

std::atomic<int> on_another_stack{0};

void check_stack(int) {
  stack_t stack = {};
  sigaltstack(nullptr, &stack);
  if (stack.ss_flags & SS_ONSTACK) ++on_another_stack;
}

TEST(SignalStack, EveryThreadOfTheCpuDeviceHasOne) {
  constexpr int kThreads = 3;
  const auto device = create_cpu_device(kThreads);
  struct sigaction action {
  }, before;
  action.sa_handler = check_stack;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR2, &action, &before);
#pragma omp parallel
  raise(SIGUSR2);
  sigaction(SIGUSR2, &before, nullptr);
  EXPECT_EQ(on_another_stack, kThreads);
}

TEST(SignalStack, RepeatedCallsHaveNoEffect) {
  use_signal_stack();
  stack_t first = {}, second = {};
  sigaltstack(nullptr, &first);
  use_signal_stack();
  sigaltstack(nullptr, &second);
  EXPECT_NE(first.ss_sp, nullptr);
  EXPECT_EQ(first.ss_sp, second.ss_sp);
}

}  // namespace
}  // namespace trireme
