#include "trainer/optimizer/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>

#include "trainer/config/config_text.h"

namespace trireme::train {
namespace {

ScheduleConfig schedule(const std::string& text) {
  ScheduleConfig config;
  parse_text(text, "schedule", config);
  return config;
}

TEST(Schedule, Constant) {
  const Schedule s(schedule("learning_rate: 0.1 constant {}"), 10, 100);
  EXPECT_DOUBLE_EQ(s.at(0), 0.1);
  EXPECT_DOUBLE_EQ(s.at(99), 0.1);
}

TEST(Schedule, StepInStepsAndEpochs) {
  for (const char* text : {"learning_rate: 1 step { steps: 30 gamma: 0.5 }",
                           "learning_rate: 1 step { epochs: 3 gamma: 0.5 }"}) {
    const Schedule s(schedule(text), 10, 100);
    EXPECT_DOUBLE_EQ(s.at(29), 1) << text;
    EXPECT_DOUBLE_EQ(s.at(30), 0.5) << text;
    EXPECT_DOUBLE_EQ(s.at(59), 0.5) << text;
    EXPECT_DOUBLE_EQ(s.at(90), 0.125) << text;
  }
}

TEST(Schedule, MultiStepDecaysAtItsMilestones) {
  for (const char* text : {"learning_rate: 1 multi_step { steps: [15, 30] }",
                           "learning_rate: 1 multi_step { epochs: [1.5, 3] }"}) {
    const Schedule s(schedule(text), 10, 100);
    EXPECT_DOUBLE_EQ(s.at(14), 1) << text;
    EXPECT_DOUBLE_EQ(s.at(15), 0.1) << text;
    EXPECT_DOUBLE_EQ(s.at(29), 0.1) << text;
    EXPECT_NEAR(s.at(30), 0.01, 1e-15) << text;
  }
}

// PyTorch's CosineAnnealingLR in closed form, T_max = 100.
TEST(Schedule, CosineEndsAtItsMinimum) {
  const Schedule s(schedule("learning_rate: 0.5 cosine { min_learning_rate: 0.1 }"), 10, 100);
  EXPECT_DOUBLE_EQ(s.at(0), 0.5);
  EXPECT_NEAR(s.at(50), 0.3, 1e-15);
  EXPECT_NEAR(s.at(100), 0.1, 1e-15);
  for (int t : {1, 17, 73}) {
    EXPECT_NEAR(s.at(t), 0.1 + 0.4 * (1 + std::cos(std::numbers::pi * t / 100)) / 2, 1e-15);
  }
  EXPECT_NEAR(s.at(150), 0.1, 1e-15);  // beyond the end it stays
}

TEST(Schedule, Polynomial) {
  const Schedule s(schedule("learning_rate: 1 polynomial { power: 2 min_learning_rate: 0.2 }"), 10,
                   100);
  EXPECT_DOUBLE_EQ(s.at(0), 1);
  EXPECT_DOUBLE_EQ(s.at(50), 0.2 + 0.8 * 0.25);
  EXPECT_DOUBLE_EQ(s.at(100), 0.2);
}

// The values of torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=20), which rises until
// step 5 and falls until step 19.
TEST(Schedule, OneCycleAsPyTorch) {
  const Schedule s(schedule("learning_rate: 1 one_cycle {}"), 10, 20);
  EXPECT_NEAR(s.at(0), 0.04, 1e-12);
  EXPECT_NEAR(s.at(5), 1, 1e-12);
  EXPECT_NEAR(s.at(19), 0.04 / 1e4, 1e-12);
  const auto between = [](double from, double to, double fraction) {
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * fraction));
  };
  EXPECT_NEAR(s.at(2), between(0.04, 1, 2.0 / 5), 1e-12);
  EXPECT_NEAR(s.at(12), between(1, 4e-6, 7.0 / 14), 1e-12);
}

// PyTorch's LinearLR(start_factor=0.2, total_iters=10).
TEST(Schedule, WarmupIsLinear) {
  for (const char* length : {"steps: 10", "epochs: 0.5"}) {
    const Schedule s(
        schedule(std::string("learning_rate: 2 warmup { start_factor: 0.2 ") + length + " }"), 20,
        100);
    EXPECT_NEAR(s.at(0), 0.4, 1e-15);
    EXPECT_NEAR(s.at(5), 2 * 0.6, 1e-15);
    EXPECT_NEAR(s.at(9), 2 * 0.92, 1e-15);
    EXPECT_DOUBLE_EQ(s.at(10), 2);
  }
}

TEST(Schedule, CosineStartsAfterWarmupAndMilestonesAtTheFirstStep) {
  const std::string warmup = " warmup { steps: 10 start_factor: 0 }";
  const Schedule cosine(schedule("learning_rate: 1 cosine {}" + warmup), 10, 110);
  EXPECT_DOUBLE_EQ(cosine.at(5), 0.5);
  EXPECT_DOUBLE_EQ(cosine.at(10), 1);
  EXPECT_NEAR(cosine.at(60), 0.5, 1e-15);
  const Schedule steps(schedule("learning_rate: 1 step { steps: 20 }" + warmup), 10, 110);
  EXPECT_DOUBLE_EQ(steps.at(19), 1);
  EXPECT_DOUBLE_EQ(steps.at(20), 0.1);
}

TEST(Schedule, RunsMayBeShorterThanTheirWarmup) {
  const Schedule s(schedule("learning_rate: 1 cosine {} warmup { steps: 100 }"), 10, 10);
  for (int t = 0; t < 10; ++t) EXPECT_TRUE(s.at(t) > 0 && s.at(t) < 1) << t;
}

}  // namespace
}  // namespace trireme::train
