#include "trainer/optimizer/epochs.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

bool operator==(const SamplePosition& a, const SamplePosition& b) {
  return a.epoch == b.epoch && a.sample == b.sample;
}

// 190 samples in batches of 50: 4 steps an epoch, the last of 40 samples.
const Epochs kEpochs(190, 50);

TEST(Epochs, AShortLastBatchIsOneStep) {
  EXPECT_EQ(kEpochs.steps(), 4);
  EXPECT_EQ(Epochs(200, 50).steps(), 4);
  EXPECT_EQ(Epochs(201, 50).steps(), 5);
  EXPECT_EQ(Epochs(10, 50).steps(), 1);
}

TEST(Epochs, AdvancesThroughEpochs) {
  EXPECT_TRUE(kEpochs.after({0, 0}, 0) == (SamplePosition{0, 0}));
  EXPECT_TRUE(kEpochs.after({0, 0}, 3) == (SamplePosition{0, 150}));
  EXPECT_TRUE(kEpochs.after({0, 0}, 4) == (SamplePosition{1, 0}));
  EXPECT_TRUE(kEpochs.after({0, 0}, 9) == (SamplePosition{2, 50}));
  EXPECT_TRUE(kEpochs.after({2, 100}, 2) == (SamplePosition{3, 0}));
}

// The epoch was begun with another batch.
TEST(Epochs, AnEpochEndsAfterItsSamplesWithAnyBatch) {
  EXPECT_TRUE(kEpochs.after({1, 64}, 2) == (SamplePosition{1, 164}));
  EXPECT_TRUE(kEpochs.after({1, 64}, 3) == (SamplePosition{2, 0}));
  EXPECT_TRUE(kEpochs.after({1, 64}, 8) == (SamplePosition{3, 50}));
  EXPECT_EQ(kEpochs.steps_until({1, 64}, 2), 3);
  EXPECT_EQ(kEpochs.steps_until({1, 64}, 4), 11);
  EXPECT_EQ(kEpochs.steps_until({1, 64}, 1), 0);
  EXPECT_EQ(kEpochs.steps_until({0, 0}, 3), 12);
}

// Equal bitwise, so that learning rates are those of a schedule that counts steps.
TEST(Epochs, WithAConstantBatchThePositionIsTheNumberOfSteps) {
  for (const Epochs& epochs : {kEpochs, Epochs(60000, 64), Epochs(1281167, 97), Epochs(7, 3)}) {
    for (int64_t step = 0; step < 40000; step += step < 2000 ? 1 : 97) {
      ASSERT_EQ(epochs.in_steps(epochs.after({0, 0}, step)), static_cast<double>(step));
    }
  }
}

TEST(Epochs, WithAnotherBatchThePositionFollowsFromTheSamples) {
  EXPECT_EQ(kEpochs.in_steps({3, 0}), 12);
  EXPECT_EQ(kEpochs.in_steps({3, 75}), 13.5);
  EXPECT_EQ(Epochs(190, 25).in_steps({3, 75}), 27);
  EXPECT_EQ(kEpochs.in_epochs({3, 95}), 3.5);
}

TEST(Epochs, PositionsBeyondTheEndOfAnEpochHaveNoStepsLeft) {
  // The data set has become smaller.
  EXPECT_TRUE(kEpochs.after({1, 500}, 1) == (SamplePosition{2, 50}));
  EXPECT_EQ(kEpochs.steps_until({1, 500}, 3), 4);
}

}  // namespace
}  // namespace trireme::train
