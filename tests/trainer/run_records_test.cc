#include "trainer/report/run_records.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "temporary_folder.h"
#include "trainer/config/config.h"
#include "trainer/config/run_folder.h"

namespace trireme::train {
namespace {

constexpr const char* kConfig = "batch { global: 64 }\ntrain { epochs: 2 }\n";
constexpr const char* kStart =
    R"({"event":"start","step":0,"epoch":0,"version":"0.1.0","model":"lenet","parameters":61706,)"
    R"("ranks":2,"precision":"FP32","batch_global":64,"steps_per_epoch":10,"total_steps":20,)"
    R"("tokens_per_sample":8})"
    "\n";
constexpr const char* kSummary =
    R"({"status":"done","ranks":2,"precision":"FP32","epochs":2,"steps":20,)"
    R"("samples_per_second":1234.5,"wall_seconds":3.5,"train_loss":0.25,"eval_loss":0.5,)"
    R"("eval_accuracy":null,"eval_top5":null,"peak_memory_bytes":1048576})";

std::string step_line(int step, double loss = 1) {
  return R"({"event":"step","step":)" + std::to_string(step) + R"(,"epoch":0,"train_loss":)" +
         std::to_string(loss) + R"(,"step_ms":100,"samples_per_second":640})" + "\n";
}

RunRecords parse(const std::string& text) {
  RunRecords records;
  read_metrics(text, records);
  return records;
}

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest() {
    std::filesystem::create_directories(run_.path / "log");
    spill(run_.config(), kConfig);
    spill(run_.metrics(), kStart + step_line(1) + step_line(2));
  }

  RunRecords read() const { return read_run(run_.path); }

  TemporaryFolder folder_;
  RunFolder run_{folder_.path() / "run"};
};

TEST(RunRecords, ReadsStepsEvaluationsLagsAndEvents) {
  const RunRecords run = parse(
      std::string(kStart) +
      R"({"event":"step","step":5,"epoch":0,"train_loss":0.123456789,"learning_rate":0.1,)"
      R"("samples_per_second":640,"step_ms":100,"data_wait_ms":1,"exposed_comm_ms":2,)"
      R"("forward_ms":30,"backward_ms":60,"update_ms":4,"model_flops_utilization":0.5,)"
      R"("padding_share":0.25})"
      "\n"
      R"({"event":"ranks","step":5,"lag_ms":[0.5,1.5]})"
      "\n"
      R"({"event":"loss_spike","step":5,"train_loss":9})"
      "\n"
      R"({"event":"eval","step":5,"epoch":1,"samples":100,"eval_loss":0.5,"eval_accuracy":0.75,)"
      R"("eval_top5":1.0,"seconds":0.5})"
      "\n"
      R"({"event":"checkpoint","step":5,"path":"c","stall_seconds":0.25})"
      "\n" +
      step_line(10));
  EXPECT_EQ(run.model, "lenet");
  EXPECT_EQ(run.ranks, 2);
  EXPECT_EQ(run.steps_per_epoch, 10);
  EXPECT_EQ(run.planned_steps, 20);
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.steps[0].train_loss, 0.123456789);
  EXPECT_EQ(run.steps[0].forward_ms, 30);
  EXPECT_EQ(run.steps[0].model_flops_utilization, 0.5);
  EXPECT_EQ(run.steps[0].padding_share, 0.25);
  EXPECT_FALSE(run.steps[1].forward_ms);
  ASSERT_EQ(run.evaluations.size(), 1u);
  EXPECT_EQ(run.evaluations[0].metrics.accuracy, 0.75);
  // 5 steps of 0.1 s, then the evaluation, then the checkpoint, then 5 steps.
  EXPECT_DOUBLE_EQ(run.steps[0].seconds, 0.5);
  EXPECT_DOUBLE_EQ(run.evaluations[0].seconds, 1.0);
  EXPECT_DOUBLE_EQ(run.steps[1].seconds, 1.75);
  ASSERT_EQ(run.lags.size(), 1u);
  EXPECT_EQ(run.lags[0].ms, (std::vector<Recorded>{0.5, 1.5}));
  ASSERT_EQ(run.events.size(), 3u);
  EXPECT_EQ(run.events[1].kind, "loss_spike");
  EXPECT_TRUE(run.problems.empty());
  EXPECT_DOUBLE_EQ(run.samples_per_second().value(), 640);
  EXPECT_DOUBLE_EQ(run.tokens_per_second().value(), 8 * 640);
}

std::string start_line(int64_t step, int64_t epoch, int64_t position, int64_t batch) {
  return R"({"event":"start","step":)" + std::to_string(step) + R"(,"epoch":)" +
         std::to_string(epoch) + R"(,"position":)" + std::to_string(position) +
         R"(,"samples_per_epoch":190,"batch_global":)" + std::to_string(batch) + "}\n";
}

// 190 samples per epoch: 4 steps of 50 samples, and from step 9, which is 50 samples into the third
// epoch, 2 steps of 100.
TEST(RunRecords, CountsEpochsBySamplesWhenTheBatchChanges) {
  const RunRecords run =
      parse(start_line(0, 0, 0, 50) + step_line(9) + start_line(9, 2, 50, 100) + step_line(12));
  ASSERT_EQ(run.starts.size(), 2u);
  EXPECT_EQ(run.epochs_at(0), 0);
  EXPECT_EQ(run.epochs_at(4), 1);
  EXPECT_DOUBLE_EQ(run.epochs_at(6), 1 + 100.0 / 190);
  EXPECT_DOUBLE_EQ(run.epochs_at(9), 2 + 50.0 / 190);
  EXPECT_DOUBLE_EQ(run.epochs_at(10), 2 + 150.0 / 190);
  EXPECT_EQ(run.epochs_at(11), 3);
  EXPECT_EQ(run.epochs_at(13), 4);
}

TEST(RunRecords, CountsEpochsOfVersion01ByTheLatestBatch) {
  EXPECT_EQ(parse(kStart).epochs_at(15), 1.5);
  EXPECT_EQ(parse(step_line(1)).epochs_at(1), 0);
}

TEST(RunRecords, DistinguishesNonFiniteFromMissingValues) {
  const RunRecords run = parse(R"({"event":"step","step":1,"train_loss":"NaN","step_ms":null})"
                               "\n"
                               R"({"event":"eval","step":1,"eval_loss":"Infinity"})"
                               "\n");
  ASSERT_EQ(run.steps.size(), 1u);
  ASSERT_TRUE(run.steps[0].train_loss);
  EXPECT_TRUE(std::isnan(*run.steps[0].train_loss));
  EXPECT_FALSE(run.steps[0].step_ms);
  ASSERT_EQ(run.evaluations.size(), 1u);
  EXPECT_EQ(run.evaluations[0].metrics.loss, INFINITY);
  EXPECT_FALSE(run.evaluations[0].metrics.accuracy);
}

TEST(RunRecords, ReadsNonFiniteValuesOfTheSummary) {
  const auto summary =
      parse_summary(R"({"status":"done","train_loss":"NaN","eval_loss":"-Infinity"})");
  ASSERT_TRUE(summary);
  EXPECT_TRUE(std::isnan(summary->train_loss));
  EXPECT_EQ(summary->eval.loss, -INFINITY);
  EXPECT_FALSE(summary->eval.accuracy);
}

TEST(RunRecords, ReadsOnlyValidMetrics) {
  const RunRecords run =
      parse(R"({"event":"eval","step":1,"eval_loss":1,"eval_mae":0.5,"eval_r2":"-Infinity",)"
            R"("eval_macro_f1":"high"})"
            "\n");
  const EvaluationMetrics wanted{.loss = 1, .mae = 0.5, .r2 = -INFINITY};
  EXPECT_EQ(run.evaluations.at(0).metrics, wanted);
}

TEST(RunRecords, IncompleteLastLineIsNotAProblem) {
  const RunRecords run = parse(step_line(1) + R"({"event":"step","st)");
  EXPECT_EQ(run.steps.size(), 1u);
  EXPECT_TRUE(run.problems.empty());
}

TEST(RunRecords, SkipsDamagedLinesAndReportsTheirNumbers) {
  const RunRecords run =
      parse(step_line(1) + std::string("\0\0\0\n", 4) + "[1]\n{\"event\":7}\n" + step_line(2));
  EXPECT_EQ(run.steps.size(), 2u);
  ASSERT_EQ(run.problems.size(), 3u);
  EXPECT_EQ(run.problems[0], "metrics.jsonl:2: the line is damaged and was skipped");
}

TEST(RunRecords, ReportsOnlyTheFirstDamagedLines) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "x\n";
  const RunRecords run = parse(text);
  ASSERT_EQ(run.problems.size(), 6u);
  EXPECT_EQ(run.problems.back(), "metrics.jsonl: 95 more damaged lines");
}

TEST(RunRecords, RepeatedStepsReplaceEarlierOnes) {
  const RunRecords run = parse(step_line(1, 5) + step_line(2, 5) + step_line(3, 5) + kStart +
                               step_line(2, 7) + step_line(3, 7));
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.steps[0].train_loss, 5);
  EXPECT_EQ(run.steps[1].train_loss, 7);
  EXPECT_EQ(run.steps[2].step, 3);
}

TEST(RunRecords, IgnoresInvalidNumbers) {
  const RunRecords run = parse(R"({"event":"step","step":"five","train_loss":"low"})"
                               "\n"
                               R"({"event":"step","step":18446744073709551615})"
                               "\n"
                               R"({"event":"ranks","step":1,"lag_ms":7})"
                               "\n");
  ASSERT_EQ(run.steps.size(), 1u);
  EXPECT_EQ(run.steps[0].step, 0);
  EXPECT_TRUE(run.lags.empty());
}

TEST(RunRecords, BestHasTheHighestAccuracyOrLowestLoss) {
  RunRecords run;
  EXPECT_EQ(run.best(), nullptr);
  run.evaluations = {{.step = 1, .metrics = {.loss = 3}},
                     {.step = 2, .metrics = {.loss = 1}},
                     {.step = 3, .metrics = {.loss = 2}}};
  EXPECT_EQ(run.best()->step, 2);
  run.evaluations = {{.step = 1, .metrics = {.loss = 1, .accuracy = 0.5}},
                     {.step = 2, .metrics = {.loss = 2, .accuracy = 0.7}},
                     {.step = 3, .metrics = {.loss = 1, .accuracy = 0.7}}};
  EXPECT_EQ(run.best()->step, 2);
}

TEST(RunRecords, NanIsNeverTheBest) {
  RunRecords run;
  run.evaluations = {{.step = 1, .metrics = {.loss = NAN}},
                     {.step = 2, .metrics = {.loss = INFINITY}}};
  EXPECT_EQ(run.best(), nullptr);
  run.evaluations.push_back({.step = 3, .metrics = {.loss = 7}});
  run.evaluations.push_back({.step = 4, .metrics = {.loss = NAN}});
  EXPECT_EQ(run.best()->step, 3);
  run.evaluations = {{.step = 1, .metrics = {.loss = NAN, .accuracy = 0.0}},
                     {.step = 2, .metrics = {.loss = 9, .accuracy = 0.0}},
                     {.step = 3, .metrics = {.loss = 9, .accuracy = NAN}}};
  EXPECT_EQ(run.best()->step, 2);
  // A single overflowing sample makes the loss NaN, but the accuracy is still valid.
  run.evaluations.push_back({.step = 4, .metrics = {.loss = NAN, .accuracy = 0.9}});
  EXPECT_EQ(run.best()->step, 4);
}

TEST_F(RunFolderTest, TheBestEvaluationUpToAStep) {
  EXPECT_FALSE(best_evaluation({}, run_.path / "missing", 9));
  EXPECT_FALSE(best_evaluation({}, run_.metrics(), 9)) << "no evaluation";
  const auto eval = [](int step, double loss) {
    return fmt::format(R"({{"event":"eval","step":{},"eval_loss":{}}})"
                       "\n",
                       step, loss);
  };
  spill(run_.metrics(), kStart + eval(2, 0.75) + eval(4, 0.5) + "damaged\n" + eval(6, 0.25));
  EXPECT_EQ(best_evaluation({}, run_.metrics(), 1), std::nullopt);
  EXPECT_EQ(best_evaluation({}, run_.metrics(), 5)->step, 4);
  EXPECT_EQ(best_evaluation({}, run_.metrics(), 6)->metrics.loss, 0.25);
}

TEST_F(RunFolderTest, RunWithASummaryIsDone) {
  spill(run_.summary(), kSummary);
  const RunRecords run = read();
  EXPECT_EQ(run.status, RunStatus::kDone);
  EXPECT_EQ(run.config.train().epochs(), 2);
  EXPECT_EQ(run.config_text, kConfig);
  ASSERT_TRUE(run.summary);
  EXPECT_EQ(run.summary->eval.loss, 0.5);
  EXPECT_FALSE(run.summary->eval.accuracy);
  EXPECT_EQ(run.samples_per_second(), 1234.5);
  EXPECT_TRUE(run.problems.empty());
}

TEST_F(RunFolderTest, LockedRunIsRunning) {
  spill(run_.summary(), kSummary);  // written before a resume
  const auto lock = std::make_unique<RunLock>(run_.path);
  const RunRecords run = read();
  EXPECT_EQ(run.status, RunStatus::kRunning);
  EXPECT_NE(run.status_detail.find("process"), std::string::npos);
}

TEST_F(RunFolderTest, LockIsLostIfTheFolderIsEmptiedOrReplaced) {
  const RunLock lock(run_.path);
  EXPECT_TRUE(lock.holds());
  const std::filesystem::path moved = run_.path.string() + ".moved";
  std::filesystem::rename(run_.path, moved);
  EXPECT_FALSE(lock.holds());
  std::filesystem::create_directories(run_.path);
  EXPECT_FALSE(lock.holds());
  spill(run_.path / ".lock", "");
  EXPECT_FALSE(lock.holds());
  std::filesystem::remove_all(run_.path);
  std::filesystem::rename(moved, run_.path);
  EXPECT_TRUE(lock.holds());
  std::filesystem::remove(run_.path / ".lock");
  EXPECT_FALSE(lock.holds());
}

// Runs that start in the same second have the same name in mind.
TEST_F(RunFolderTest, RunsThatStartTogetherGetFoldersOfTheirOwn) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  RunConfig config;
  config.mutable_model()->mutable_zoo()->set_name("mlp");
  constexpr int kRuns = 24;
  std::vector<std::string> created(kRuns);
  std::latch ready(kRuns);
  std::vector<std::thread> runs;
  for (std::string& path : created) {
    runs.emplace_back([&] {
      ready.arrive_and_wait();
      path = create_run_folder(config).string();
    });
  }
  for (std::thread& run : runs) run.join();
  std::filesystem::current_path(before);
  const std::set<std::string> distinct(created.begin(), created.end());
  EXPECT_EQ(distinct.size(), created.size());
  for (const std::string& path : distinct) {
    EXPECT_TRUE(path.starts_with("runs/mlp-")) << path;
    EXPECT_TRUE(std::filesystem::is_directory(folder_.path() / path)) << path;
  }
}

TEST_F(RunFolderTest, ReadingDoesNotLockTheFolder) {
  read();
  EXPECT_NO_THROW(const RunLock lock(run_.path));
}

TEST_F(RunFolderTest, RunWithoutAnEndIsDead) { EXPECT_EQ(read().status, RunStatus::kDead); }

TEST_F(RunFolderTest, StoppedRunIsRecognizedWithoutASummary) {
  std::ofstream(run_.metrics(), std::ios::app)
      << R"({"event":"end","step":2,"epoch":0,"status":"stopped"})"
      << "\n";
  EXPECT_EQ(read().status, RunStatus::kStopped);
}

TEST_F(RunFolderTest, FailedRunHasTheMessageOfTheOtherRanks) {
  spill(run_.log(0), "2026-11-21T22:47:44Z batch 64\nrank 1 (host b, pid 7) died in backward\n");
  const RunRecords run = read();
  EXPECT_EQ(run.status, RunStatus::kFailed);
  EXPECT_EQ(run.status_detail, "rank 1 (host b, pid 7) died in backward");
}

TEST_F(RunFolderTest, FailedRunMayEndWithANonFiniteLoss) {
  spill(run_.log(0), "2026-11-21T22:47:44Z batch 64\n");
  std::ofstream metrics(run_.metrics(), std::ios::app);
  metrics << R"({"event":"not_finite","step":3,"epoch":0,"what":"step 3: inf in fc3"})"
          << "\n";
  metrics.flush();
  EXPECT_EQ(read().status, RunStatus::kFailed);
  EXPECT_EQ(read().status_detail, "step 3: inf in fc3");
  metrics << step_line(4);  // the run skipped that step and continued
  metrics.close();
  EXPECT_EQ(read().status, RunStatus::kDead);
}

TEST_F(RunFolderTest, DamagedFilesAreReportedAsProblems) {
  spill(run_.config(), "batch { global: many }");
  spill(run_.summary(), "{");
  spill(run_.environment(), "[]");
  spill(run_.evaluation(), std::string(100000, '['));
  const RunRecords run = read();
  EXPECT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.problems.size(), 4u);
  EXPECT_TRUE(run.environment.is_null());
}

TEST_F(RunFolderTest, PipesAreNotWaitedFor) {
  for (const auto& path : {run_.summary(), run_.environment(), run_.evaluation(), run_.metrics(),
                           run_.log(0), run_.path / ".lock"}) {
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0) << path;
  }
  const RunRecords run = read();
  EXPECT_EQ(run.status, RunStatus::kDead);
  EXPECT_TRUE(run.steps.empty());
  EXPECT_EQ(run.problems.size(), 4u);
  for (const std::string& problem : run.problems) {
    EXPECT_TRUE(problem.ends_with(": is not a regular file")) << problem;
  }
}

TEST_F(RunFolderTest, FailureIsFoundInAHugeLog) {
  std::string log;
  for (int i = 0; i < 10000; ++i) log += "2026-11-21T22:47:44Z epoch 1 step 7\n";
  spill(run_.log(0), log + "rank 1 died\n");
  EXPECT_EQ(read().status_detail, "rank 1 died");
  spill(run_.log(0), log + "rank 1 died" + std::string(1 << 20, 'x'));
  EXPECT_LE(read().status_detail.size(), 64u << 10);
}

TEST_F(RunFolderTest, RunWithoutMetricsHasNoSteps) {
  std::filesystem::remove(run_.metrics());
  EXPECT_TRUE(read().steps.empty());
}

int code_of(const std::filesystem::path& path) {
  try {
    read_run(path);
  } catch (const Error& error) {
    return static_cast<int>(error.code());
  }
  return 0;
}

TEST(RunRecords, ReportsAFolderThatIsNotARun) {
  const TemporaryFolder folder;
  EXPECT_EQ(code_of(folder.path()), 2);
  EXPECT_EQ(code_of(folder.path() / "missing"), 2);
  EXPECT_FALSE(is_run_folder(folder.path()));
}

}  // namespace
}  // namespace trireme::train
