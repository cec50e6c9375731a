#include "trainer/report/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

namespace trireme::train {
namespace {

class Captured {
 public:
  std::function<void(std::string)> put() {
    return [this](const std::string& text) { text_ += text; };
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Progress::Step at(int64_t step) {
  return {.step = step,
          .epoch = 0,
          .samples = 10,
          .loss = 0.5,
          .seconds = 0.02,
          .data_wait = 0.002,
          .exposed_comm = 0.004};
}

TEST(Progress, PlainOutputIsOneLinePerEpoch) {
  Captured out;
  Progress progress({.put = out.put()}, 2, 200);
  const auto start = Progress::Clock::now();
  for (int64_t step = 1; step <= 100; ++step) progress.step(at(step), start);
  progress.epoch_done(1, 0.25,
                      Evaluation{.samples = 10, .metrics = {.loss = 0.3, .accuracy = 0.9}});
  EXPECT_EQ(out.text(),
            "epoch 1/2  step 100  loss 0.2500  500 samples/s  data wait 10%  exposed comm 20%  "
            "eval loss 0.3000  accuracy 90.00%\n");
}

TEST(Progress, ShowsTheTimeOfWaitingForOtherStages) {
  Captured out;
  Progress progress({.put = out.put()}, 1, 100);
  Progress::Step step = at(1);
  step.idle = 0.25 * step.seconds;
  progress.step(step, Progress::Clock::now());
  progress.epoch_done(1, 0.25, std::nullopt);
  EXPECT_TRUE(out.text().ends_with("  exposed comm 20%  idle 25%\n")) << out.text();
}

TEST(Progress, CountsTokens) {
  Captured out;
  Progress progress({.put = out.put()}, 1, 100);
  Progress::Step step = at(1);
  step.tokens = step.samples * 128;
  progress.step(step, Progress::Clock::now());
  progress.epoch_done(1, 0.25, std::nullopt);
  EXPECT_EQ(out.text(),
            "epoch 1/1  step 1  loss 0.2500  64.00 k tokens/s  data wait 10%  exposed comm 20%\n");
}

TEST(Progress, ShowsTheMetricsOfTheTask) {
  Captured out;
  Progress progress({.put = out.put()}, 1, 1);
  EvaluationMetrics classes{.loss = 0.3, .accuracy = 0.9, .top5 = 1};
  classes.macro_precision = classes.macro_recall = classes.macro_f1 = 0.75;
  progress.evaluated(1, {.metrics = classes});
  progress.evaluated(2, {.metrics = {.loss = 0.25, .mae = 0.125, .rmse = 0.5, .r2 = 0.875}});
  EXPECT_EQ(out.text(),
            "step 1  eval loss 0.3000  accuracy 90.00%  macro F1 75.00%\n"
            "step 2  eval loss 0.2500  MAE 0.125  R2 0.8750\n");
}

TEST(Progress, LongEpochsGetPeriodicLines) {
  Captured out;
  Progress progress({.put = out.put()}, 1, 1000);
  const auto start = Progress::Clock::now();
  for (int64_t step = 1; step <= 600; ++step) {
    progress.step(at(step), start + std::chrono::milliseconds(100) * step);
  }
  std::string text = out.text();
  EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 5);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 6);
  // The line at the end of the epoch, right after one for its last step, repeats the speed.
  progress.epoch_done(1, 0.5, std::nullopt);
  text = out.text();
  EXPECT_TRUE(text.ends_with("500 samples/s  data wait 10%  exposed comm 20%\n")) << text;
}

TEST(Progress, ShortEpochsDoNotAllGetALine) {
  Captured out;
  Progress progress({.put = out.put()}, 100000, 100000);
  for (int64_t step = 1; step <= 1000; ++step) {
    progress.step(at(step), Progress::Clock::now());
    progress.epoch_done(step, 0.5, std::nullopt);
  }
  const std::string text = out.text();
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 100);
}

TEST(Progress, LiveLineIsOverwrittenAndFitsTheTerminal) {
  Captured out;
  {
    Progress progress({.put = out.put(), .live = true, .columns = 60}, 2, 200);
    const auto start = Progress::Clock::now() + std::chrono::seconds(1);
    progress.step(at(50), start);
    progress.note("a note");
  }
  const std::string text = out.text();
  EXPECT_TRUE(text.starts_with("\r\x1b[K")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_TRUE(text.ends_with("\r\x1b[Ka note\n")) << text;
  EXPECT_LT(text.find("\r\x1b[Ka note"), 60u + 4u);
}

TEST(Progress, QuietPrintsNothing) {
  Captured out;
  Progress progress({.put = out.put(), .quiet = true}, 1, 1);
  progress.step(at(1), Progress::Clock::now() + std::chrono::hours(1));
  progress.epoch_done(1, 0.5, std::nullopt);
  progress.note("nothing");
  EXPECT_EQ(out.text(), "");
}

TEST(Progress, NoColorDisablesColor) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(progress_options(false, {}).color);
  unsetenv("NO_COLOR");
}

}  // namespace
}  // namespace trireme::train
