#include "trainer/optimizer/training_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::train {
namespace {

RunConfig config(const std::vector<std::string>& assignments) {
  return parse_config(R"(
model { zoo { name: "mlp" } }
data { synthetic { shape: [8] } }
batch { global: 50 }
train { epochs: 10 }
schedule { learning_rate: 1 }
)",
                      "test", assignments)
      .run;
}

std::vector<std::string> warnings(const std::vector<std::string>& assignments,
                                  int64_t samples = 400) {  // 80 steps
  return schedule_warnings(config(assignments), samples);
}

// Trained with rates of 8e-10 to 8e-9, without a warning.
TEST(ScheduleWarnings, AWarmupMayNotTakeTheWholeRun) {
  using Warnings = std::vector<std::string>;
  for (const char* kind : {"constant", "cosine", "polynomial", "one_cycle"}) {
    const std::string schedule = std::string("schedule=") + kind;
    EXPECT_EQ(warnings({schedule}), Warnings()) << kind;
    EXPECT_EQ(warnings({schedule, "schedule.warmup={steps: 60}"}), Warnings()) << kind;
    for (const int length : {80, 200}) {
      EXPECT_EQ(warnings({schedule, "schedule.warmup={steps: " + std::to_string(length) + "}"}),
                Warnings({"schedule.warmup: takes " + std::to_string(length) +
                          " steps, but the run has 80, so the warmup is not over before the end"}))
          << kind;
    }
  }
  EXPECT_EQ(
      warnings({"schedule=one_cycle", "schedule.warmup={steps: 79}"}),
      Warnings({"schedule.learning_rate: 1 is never reached: the highest rate of the 80 steps "
                "is 4e-06; schedule.warmup takes 79 of them"}));
  EXPECT_EQ(warnings({"schedule=cosine", "schedule.warmup={steps: 79}"}), Warnings());
  EXPECT_EQ(warnings({"schedule.warmup={epochs: 10}"}).size(), 1u);
  EXPECT_EQ(warnings({"schedule.warmup={epochs: 10}"}, /*samples=*/0), Warnings());
}

TEST(ScheduleWarnings, TheBaseRateShouldBeReached) {
  using Warnings = std::vector<std::string>;
  // The run ends before the peak of the cycle, which is that of 10 epochs.
  EXPECT_EQ(warnings({"schedule=one_cycle", "train.max_steps=5"}),
            Warnings({"schedule.learning_rate: 1 is never reached: the highest rate of the 5 steps "
                      "is 0.1099"}));
  // The rate has decayed before the warmup is over.
  EXPECT_EQ(warnings({"schedule.step={steps: 10}", "schedule.warmup={steps: 50}"}).size(), 1u);
  EXPECT_EQ(warnings({"schedule.step={steps: 10}", "schedule.warmup={steps: 5}"}), Warnings());
  for (const int steps : {1, 2, 3, 5, 6, 7, 20, 2'000'000}) {
    RunConfig run = config({"schedule=one_cycle", "train.max_steps=" + std::to_string(steps)});
    run.mutable_train()->clear_epochs();
    EXPECT_EQ(schedule_warnings(run, 400).size(), steps == 1) << steps;
  }
  EXPECT_EQ(warnings({"schedule.learning_rate=0", "schedule=one_cycle"}), Warnings());
  EXPECT_EQ(warnings({"train.max_steps=0", "schedule.warmup={steps: 5}"}), Warnings());
}

TEST(ScheduleWarnings, NoRateShouldBeAboveTheBaseRate) {
  using Warnings = std::vector<std::string>;
  for (const int64_t samples : {int64_t{0}, int64_t{400}}) {
    const auto of = [&](const std::string& schedule) { return warnings({schedule}, samples); };
    EXPECT_EQ(
        of("schedule.cosine={min_learning_rate: 2}"),
        Warnings({"schedule.cosine.min_learning_rate: is 2, above schedule.learning_rate, 1"}));
    EXPECT_EQ(of("schedule.polynomial={min_learning_rate: 1.5}").size(), 1u);
    EXPECT_EQ(of("schedule.cosine={min_learning_rate: 1}"), Warnings());
    EXPECT_EQ(of("schedule.one_cycle={start_divisor: 0.5}"),
              Warnings({"schedule.one_cycle.start_divisor: makes the schedule start at 2, above "
                        "schedule.learning_rate, 1"}));
    EXPECT_EQ(of("schedule.one_cycle={final_divisor: 0.02}").size(), 1u);
    EXPECT_EQ(of("schedule.warmup={steps: 5 start_factor: 3}").size(), 1u);
  }
}

constexpr int64_t kSamples = 190;  // 4 steps of 50, the last one smaller

const std::vector<std::string> kSchedules = {
    "schedule=constant",
    "schedule.step={steps: 7 gamma: 0.7}",
    "schedule.step={epochs: 1.3 gamma: 0.7}",
    "schedule.multi_step={steps: [5, 21]}",
    "schedule.multi_step={epochs: [1.5, 3]}",
    "schedule.cosine={min_learning_rate: 0.1}",
    "schedule.polynomial={power: 2 min_learning_rate: 0.01}",
    "schedule.one_cycle={}",
};

// With a constant batch, the rate depends only on the step, bitwise, however often the run was
// resumed.
TEST(TrainingPlan, WithAConstantBatchRatesDependOnlyOnTheStep) {
  for (const std::string& schedule : kSchedules) {
    for (const std::string length : {"train.epochs=10", "train.max_steps=33"}) {
      SCOPED_TRACE(schedule + " " + length);
      RunConfig run = config({schedule, "schedule.warmup={steps: 6}", length});
      const bool by_steps = length != "train.epochs=10";
      if (by_steps) run.mutable_train()->clear_epochs();
      const int64_t total = by_steps ? 33 : 40;
      const Schedule expected(run.schedule(), 4, static_cast<double>(total));
      const Epochs epochs(kSamples, 50);
      for (int64_t resumed : {0, 5, 8, 30}) {
        const TrainingPlan plan(run, kSamples, resumed, epochs.after({}, resumed));
        EXPECT_EQ(plan.total_steps(), total);
        EXPECT_EQ(plan.steps_per_epoch(), 4);
        for (int64_t step = resumed; step < total; ++step) {
          ASSERT_EQ(plan.learning_rate(epochs.after({}, step)),
                    expected.at(static_cast<double>(step)))
              << step;
        }
      }
    }
  }
}

// 3 of 10 epochs at batch 50, then batch 200, one step an epoch.
TEST(TrainingPlan, ContinuesFromTheSameSamplesWithAnotherBatch) {
  const RunConfig now = config({"schedule=cosine", "batch.global=200"});
  const RunConfig before = config({"schedule=cosine"});
  const SamplePosition at{3, 0};
  const TrainingPlan plan(now, kSamples, 12, at);
  EXPECT_EQ(plan.total_steps(), 12 + 7);
  EXPECT_DOUBLE_EQ(plan.learning_rate(at),
                   TrainingPlan(before, kSamples, 12, at).learning_rate(at));
  // The schedule does not end before the run.
  EXPECT_GT(plan.learning_rate({9, 0}), 0.02);
  EXPECT_NEAR(plan.learning_rate({10, 0}), 0, 1e-12);
}

TEST(TrainingPlan, ContinuesMidEpochWithASmallerBatch) {
  const RunConfig now = config({"schedule=polynomial", "batch.global=20"});  // 10 steps an epoch
  const SamplePosition at{2, 150};
  const TrainingPlan plan(now, kSamples, 11, at);
  EXPECT_EQ(plan.total_steps(), 11 + 2 + 70);
  EXPECT_DOUBLE_EQ(plan.learning_rate(at), 1 - 27.5 / 100);
  EXPECT_DOUBLE_EQ(plan.learning_rate({3, 0}), 1 - 30.0 / 100);
}

TEST(TrainingPlan, LengthsInStepsCountStepsOfTheCurrentBatch) {
  const std::string milestones = "schedule.multi_step={steps: [8, 100]}";
  const SamplePosition at{3, 0};
  EXPECT_DOUBLE_EQ(TrainingPlan(config({milestones}), kSamples, 12, at).learning_rate(at), 0.1);
  const RunConfig doubled = config({milestones, "batch.global=100"});  // 2 steps an epoch
  EXPECT_DOUBLE_EQ(TrainingPlan(doubled, kSamples, 12, at).learning_rate(at), 1);
  EXPECT_DOUBLE_EQ(TrainingPlan(doubled, kSamples, 12, at).learning_rate({4, 0}), 0.1);
  const RunConfig warmup =
      config({"schedule.warmup={steps: 8 start_factor: 0}", "batch.global=100"});
  EXPECT_DOUBLE_EQ(TrainingPlan(warmup, kSamples, 12, at).learning_rate(at), 6.0 / 8);
  const RunConfig in_epochs =
      config({"schedule.warmup={epochs: 2 start_factor: 0}", "batch.global=100"});
  EXPECT_DOUBLE_EQ(TrainingPlan(in_epochs, kSamples, 12, at).learning_rate(at), 1);
}

// max_steps counts steps of any batch, and the schedule ends with the last of them.
TEST(TrainingPlan, WithoutEpochsTheScheduleEndsWithTheLastStep) {
  RunConfig run = config({"schedule=polynomial", "train.max_steps=30", "batch.global=100"});
  run.mutable_train()->clear_epochs();
  const SamplePosition at{2, 150};  // after 11 steps of 50
  const TrainingPlan plan(run, kSamples, 11, at);
  EXPECT_EQ(plan.total_steps(), 30);
  // 19 steps are left: one in this epoch, then 9 epochs of 2.
  EXPECT_DOUBLE_EQ(plan.learning_rate(at), 1 - 5.5 / 24);
  EXPECT_NEAR(plan.learning_rate({12, 0}), 0, 1e-12);
  // Resuming again does not change it.
  const TrainingPlan again(run, kSamples, 13, {3, 100});
  EXPECT_EQ(again.learning_rate({7, 0}), plan.learning_rate({7, 0}));
}

TEST(TrainingPlan, MaxStepsDoesNotChangeTheScheduleOfEpochs) {
  const RunConfig run = config({"schedule=cosine", "train.max_steps=7"});
  const TrainingPlan plan(run, kSamples, 0, {});
  EXPECT_EQ(plan.total_steps(), 7);
  EXPECT_EQ(plan.learning_rate({1, 100}),
            TrainingPlan(config({"schedule=cosine"}), kSamples, 0, {}).learning_rate({1, 100}));
}

TEST(TrainingPlan, AFinishedRunHasNoMoreSteps) {
  EXPECT_EQ(TrainingPlan(config({}), kSamples, 40, {10, 0}).total_steps(), 40);
  EXPECT_EQ(TrainingPlan(config({"train.epochs=5"}), kSamples, 40, {10, 0}).total_steps(), 40);
}

}  // namespace
}  // namespace trireme::train
