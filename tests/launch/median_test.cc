#include "launch/median.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(Median, IsTheMiddleOrBetweenTheMiddleTwo) {
  EXPECT_EQ(median(std::vector<double>{7}), 7);
  EXPECT_EQ(median(std::vector<double>{9, 1}), 5);
  EXPECT_EQ(median(std::vector<double>{9, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<int64_t>{8, 1, 100, 2}), 5);
}

}  // namespace
}  // namespace trireme::cli
