#include "trainer/base/machine.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(Machine, MemoryLimitIsPositiveAndAtMostTheMemoryOfTheHost) {
  const Machine machine = inspect_machine();
  EXPECT_GT(machine.memory_limit, 0);
  EXPECT_LE(machine.memory_limit, machine.memory);
}

}  // namespace
}  // namespace trireme::train
