// Tests of metrics.jsonl, the CSV tables, summary.json, rank lags and hyperparameters.
#include "trainer/report/metrics.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "temporary_folder.h"
#include "trainer/config/config.h"
#include "trainer/report/hyperparameters.h"
#include "trainer/report/rank_lags.h"
#include "trainer/report/run_records.h"
#include "trainer/report/sinks/csv.h"
#include "trainer/report/sinks/jsonl.h"

namespace trireme::train {
namespace {

using nlohmann::json;

StepRecord record(int64_t step) {
  StepRecord r;
  r.step = step;
  r.train_loss = 1.0f / static_cast<float>(step);
  r.learning_rate = 0.1;
  return r;
}

MetricsEvent event(MetricsRecord record) { return {{}, std::move(record)}; }

// Opens the file as a run does, writes the records and closes it.
void append(const std::filesystem::path& path, int64_t keep_through_step,
            const std::vector<MetricsRecord>& records) {
  JsonlSink sink(path, keep_through_step);
  for (const MetricsRecord& each : records) sink.write(event(each));
  sink.flush();
}

std::vector<json> lines(const std::filesystem::path& path) {
  std::vector<json> all;
  std::istringstream text(slurp(path));
  for (std::string line; std::getline(text, line);) all.push_back(json::parse(line));
  return all;
}

TEST(Metrics, StepsAreWrittenWithFullPrecision) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  StepRecord r = record(3);
  r.epoch = 1;
  r.samples_per_second = 12345.6;
  r.step_ms = 1.25;
  r.data_wait_ms = 0.5;
  r.exposed_comm_ms = 0.25;
  r.forward_ms = 0.125;
  r.backward_ms = 0.75;
  r.update_ms = 0.0625;
  r.comm_ms = 0.375;
  r.parameter_checksum = 0xABC;
  r.loss_scale = 65536;
  r.skipped_steps = 2;
  r.tokens_per_second = 500.5;
  r.model_flops_utilization = 0.375;
  r.padding_share = 0.125;
  append(path, 0, {r, EvaluationRecord{.step = 3, .metrics = {.loss = NAN}}});
  const auto all = lines(path);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["event"], "step");
  EXPECT_EQ(all[0]["step"], 3);
  EXPECT_EQ(all[0]["epoch"], 1);
  EXPECT_EQ(all[0]["train_loss"].get<float>(), 1.0f / 3.0f);
  EXPECT_EQ(all[0]["learning_rate"], 0.1);
  EXPECT_EQ(all[0]["samples_per_second"], 12345.6);
  EXPECT_EQ(all[0]["step_ms"], 1.25);
  EXPECT_EQ(all[0]["data_wait_ms"], 0.5);
  EXPECT_EQ(all[0]["exposed_comm_ms"], 0.25);
  EXPECT_EQ(all[0]["forward_ms"], 0.125);
  EXPECT_EQ(all[0]["backward_ms"], 0.75);
  EXPECT_EQ(all[0]["update_ms"], 0.0625);
  EXPECT_EQ(all[0]["comm_ms"], 0.375);
  EXPECT_EQ(all[0]["parameter_checksum"], "0000000000000abc");
  EXPECT_EQ(all[0]["loss_scale"], 65536);
  EXPECT_EQ(all[0]["skipped_steps"], 2);
  EXPECT_EQ(all[0]["tokens_per_second"], 500.5);
  EXPECT_EQ(all[0]["model_flops_utilization"], 0.375);
  EXPECT_EQ(all[0]["padding_share"], 0.125);
  EXPECT_EQ(all[1]["event"], "eval");
  EXPECT_EQ(all[1]["eval_loss"], "NaN");
  EXPECT_FALSE(all[1].contains("eval_accuracy"));
}

TEST(Metrics, EvaluationsHaveTheirMetricsAndThoseOfEachClass) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  EvaluationRecord r{.step = 3, .metrics = {.loss = 0.5, .accuracy = 0.75, .macro_f1 = 1.0 / 3}};
  r.classes = {{.support = 4, .predicted = 2, .true_positives = 1}, {}};
  EvaluationRecord many = r;
  many.classes.resize(201);
  const EvaluationRecord numbers{.step = 5, .metrics = {.loss = 0.5, .mae = 0.25, .r2 = NAN}};
  append(path, 0, {r, many, numbers});
  const auto all = lines(path);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["eval_accuracy"], 0.75);
  EXPECT_EQ(all[0]["eval_macro_f1"], 1.0 / 3);
  EXPECT_FALSE(all[0].contains("eval_top5"));
  EXPECT_EQ(all[0]["per_class"]["precision"], json({0.5, 0.0}));
  EXPECT_EQ(all[0]["per_class"]["recall"], json({0.25, 0.0}));
  EXPECT_EQ(all[0]["per_class"]["f1"], json({1.0 / 3, 0.0}));
  EXPECT_EQ(all[0]["per_class"]["support"], json({4, 0}));
  EXPECT_FALSE(all[1].contains("per_class"));
  EXPECT_EQ(all[2]["eval_mae"], 0.25);
  EXPECT_EQ(all[2]["eval_r2"], "NaN");
  EXPECT_FALSE(all[2].contains("eval_rmse"));
}

TEST(Metrics, NonFiniteNumbersAreWrittenAsStrings) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  StepRecord r = record(1);
  r.train_loss = NAN;
  r.learning_rate = INFINITY;
  r.samples_per_second = INFINITY;
  r.step_ms = r.data_wait_ms = r.exposed_comm_ms = r.forward_ms = r.backward_ms = NAN;
  r.update_ms = r.comm_ms = -INFINITY;
  r.loss_scale = NAN;
  r.load = DeviceLoad{NAN, NAN, NAN, NAN, NAN, NAN};
  append(path, 0, {r, RanksRecord{1, {NAN, 1}, {}}, LossSpikeRecord{1, 0, INFINITY, NAN, NAN}});
  const auto all = lines(path);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["train_loss"], "NaN");
  EXPECT_EQ(all[0]["samples_per_second"], "Infinity");
  EXPECT_EQ(all[0]["comm_ms"], "-Infinity");
  EXPECT_EQ(all[0]["gpu_power_watts"], "NaN");
  EXPECT_EQ(all[1]["lag_ms"], json({"NaN", 1.0}));
  EXPECT_EQ(all[2]["train_loss"], "Infinity");
}

TEST(Metrics, ResumingTruncatesAfterTheCheckpoint) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  append(path, 0, {record(1), record(2), record(3), record(4), record(5)});
  spill(path, slurp(path) + R"({"event":"step","st)");  // killed while writing
  append(path, 3, {record(4)});
  const auto all = lines(path);
  ASSERT_EQ(all.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(all[static_cast<size_t>(i)]["step"], i + 1);
}

// Checkpoints are written concurrently with training, so their lines come after those of later
// steps.
TEST(Metrics, LateLineDoesNotProtectEarlierLinesFromTruncation) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  const CheckpointRecord saved{.step = 2};
  const auto steps_after = [&](int resumed_at) {
    append(path, resumed_at, {record(resumed_at + 1)});
    std::vector<int> steps;
    for (const auto& line : lines(path)) steps.push_back(line["step"]);
    return steps;
  };
  append(path, 0, {record(1), record(2), record(3), record(4), saved, record(5)});
  EXPECT_EQ(steps_after(4), (std::vector{1, 2, 3, 4, 2, 5}));
  EXPECT_EQ(steps_after(2), (std::vector{1, 2, 3}));
  spill(path, slurp(path) + R"({"event":"checkpoint","step":2})" + "\n");
  EXPECT_EQ(steps_after(3), (std::vector{1, 2, 3, 2, 4}));
}

// Found by tests/fuzz: a line with an invalid event ended the run.
TEST(Metrics, AcceptsAnEventThatIsANumber) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  const std::string odd = R"({"event":7,"step":2})";
  spill(path, odd + "\n" + R"({"event":"step","step":9})" + "\n");
  append(path, 3, {});
  EXPECT_EQ(slurp(path), odd + "\n");
}

TEST(Metrics, NewRunStartsWithAnEmptyFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  spill(path, "{\"event\":\"step\",\"step\":1}\n");
  append(path, 0, {});
  EXPECT_EQ(slurp(path), "");
}

// Simulates a full disk by limiting the size of files.
TEST(Metrics, FullDiskIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  JsonlSink sink(path, 0);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  sink.write(event(record(1)));
  std::string what;
  try {
    sink.flush();
  } catch (const Error& error) {
    what = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(what.find(path.string()), std::string::npos) << what;
}

// --- CSV tables ---

class Table {
 public:
  void append(int64_t keep_through_step, const std::vector<MetricsRecord>& records) {
    CsvSink sink(folder_.path(), keep_through_step);
    sink.open();
    for (const MetricsRecord& each : records) sink.write(event(each));
    sink.flush();
  }
  std::vector<std::string> rows(const std::string& name) const {
    std::vector<std::string> all;
    std::istringstream text(slurp(folder_.path() / name));
    for (std::string row; std::getline(text, row);) all.push_back(row);
    return all;
  }
  std::filesystem::path path(const std::string& name) const { return folder_.path() / name; }

 private:
  TemporaryFolder folder_;
};

int64_t commas(const std::string& row) { return std::count(row.begin(), row.end(), ','); }

TEST(Csv, RowsHaveACellForEachColumn) {
  Table table;
  StepRecord scaled = record(2);
  scaled.loss_scale = 1024;
  scaled.idle_ms = 3.5;
  table.append(
      0, {record(1), scaled,
          EvaluationRecord{.step = 2, .samples = 10, .metrics = {.loss = 0.5, .accuracy = 0.25}},
          EvaluationRecord{.step = 4, .samples = 10, .metrics = {.loss = NAN, .r2 = -0.5}}});
  const auto steps = table.rows("steps.csv");
  ASSERT_EQ(steps.size(), 3u);
  for (const std::string& row : steps) EXPECT_EQ(commas(row), commas(steps[0])) << row;
  EXPECT_TRUE(steps[1].starts_with("1,0,1,0.1,")) << steps[1];
  EXPECT_TRUE(steps[1].ends_with(",,0,")) << steps[1];
  EXPECT_TRUE(steps[2].ends_with(",1024,0,3.5")) << steps[2];
  const auto evaluations = table.rows("evaluations.csv");
  ASSERT_EQ(evaluations.size(), 3u);
  EXPECT_EQ(evaluations[0],
            "step,epoch,samples,loss,objective,accuracy,top5,perplexity,bits_per_byte,"
            "macro_precision,macro_recall,macro_f1,mae,rmse,r2,seconds");
  EXPECT_EQ(evaluations[1], "2,0,10,0.5,,0.25,,,,,,,,,,0.0000");
  EXPECT_EQ(evaluations[2], "4,0,10,NaN,,,,,,,,,,,-0.5,0.0000");
}

TEST(Csv, ResumingTruncatesAfterTheCheckpoint) {
  Table table;
  table.append(0, {record(1), record(2), record(3)});
  spill(table.path("steps.csv"), slurp(table.path("steps.csv")) + "4,0,0.2");  // killed
  table.append(2, {record(3)});
  const auto rows = table.rows("steps.csv");
  ASSERT_EQ(rows.size(), 4u);
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_TRUE(rows[i].starts_with(std::to_string(i) + ",")) << rows[i];
  }
  table.append(0, {});
  EXPECT_EQ(table.rows("steps.csv").size(), 1u) << "a new run starts with only the header";
}

TEST(Csv, FileWithOtherColumnsIsOverwritten) {
  Table table;
  spill(table.path("steps.csv"), "step,loss\n1,0.5\n");
  table.append(1, {record(2)});
  const auto rows = table.rows("steps.csv");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].starts_with("step,epoch,train_loss,")) << rows[0];
}

// --- Rank lags, hyperparameters and the summary ---

// Returns ranks whose steps take one millisecond and wait for the given times.
std::vector<comm::RankPace> paces(int64_t steps, const std::vector<double>& waiting_ms) {
  std::vector<comm::RankPace> all;
  for (const double wait : waiting_ms) {
    all.push_back({steps, steps * 1'000'000, static_cast<int64_t>(1e6 * wait) * steps});
  }
  return all;
}

TEST(RankLags, RankThatWaitsTheLeastHasTheLargestLag) {
  RankLags lags;
  const RankLags::Clock::time_point start{};
  EXPECT_TRUE(lags.due(start));
  EXPECT_FALSE(lags.update(paces(100, {0, 0, 0}), start)) << "starts a window";
  EXPECT_FALSE(lags.due(start + std::chrono::seconds(1)));
  EXPECT_FALSE(lags.update(paces(200, {1, 1, 1}), start + std::chrono::seconds(1)));
  // Over 100 steps: ranks 0 and 1 have waited 0.6 ms each, rank 2 only 0.2.
  const auto end = start + std::chrono::seconds(6);
  const auto found = lags.update(paces(200, {0.3, 0.3, 0.1}), end);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->lag_ms.size(), 3u);
  EXPECT_EQ(found->lag_ms[0], 0);
  EXPECT_EQ(found->lag_ms[1], 0);
  EXPECT_NEAR(found->lag_ms[2], 0.4, 1e-9);
  EXPECT_EQ(found->utilization, std::vector<double>(3, 1.0));
}

TEST(RankLags, UtilizationIsTheTimeWithoutWaitsForOtherStages) {
  RankLags lags;
  const RankLags::Clock::time_point start{};
  auto now = paces(100, {0, 0});
  EXPECT_FALSE(lags.update(now, start));
  now = paces(300, {0, 0});
  now[1].idle_ns = now[1].step_ns / 6;  // a quarter of the time since
  const auto found = lags.update(now, start, /*end=*/true);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->utilization[0], 1);
  EXPECT_DOUBLE_EQ(found->utilization[1], 0.75);
}

TEST(RankLags, AreNotReportedForOneRankOrWithoutSteps) {
  RankLags lags;
  const RankLags::Clock::time_point start{};
  EXPECT_FALSE(lags.update(paces(100, {0}), start));
  EXPECT_FALSE(lags.update({}, start));
  EXPECT_FALSE(lags.update(paces(0, {0, 0}), start));
  EXPECT_FALSE(lags.update(paces(1, {0, 0}), start));
  EXPECT_FALSE(lags.update(paces(1, {0, 0}), start, /*end=*/true)) << "no steps in the window";
  EXPECT_TRUE(lags.update(paces(2, {0, 0}), start, /*end=*/true));
}

TEST(Hyperparameters, AreTheFieldsThatAreSet) {
  const Config config = parse_config(R"(
model { zoo { name: "mlp" hidden: [64, 32] } }
data { synthetic { shape: [1, 8, 8] count: 64 eval_count: 16 } }
batch { global: 32 }
train { epochs: 2 precision: BF16 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.1 constant {} }
run_dir: "somewhere"
metrics { port: 9 }
)",
                                     "run.txtpb", {});
  const auto all = hyperparameters(config.run);
  EXPECT_EQ(all.at("optimizer.sgd.momentum"), Hyperparameter(0.9));
  EXPECT_EQ(all.at("optimizer.sgd.nesterov"), Hyperparameter(false));
  EXPECT_EQ(all.at("model.zoo.name"), Hyperparameter(std::string("mlp")));
  EXPECT_EQ(all.at("model.zoo.hidden"), Hyperparameter(std::string("64, 32")));
  EXPECT_EQ(all.at("train.precision"), Hyperparameter(std::string("BF16")));
  EXPECT_EQ(all.at("batch.global"), Hyperparameter(32.0));
  EXPECT_EQ(all.at("schedule.constant"), Hyperparameter(true));
  EXPECT_FALSE(all.contains("run_dir"));
  EXPECT_FALSE(all.contains("metrics.port"));
}

TEST(Metrics, SummaryHasAllFieldsAndNullForMissingMetrics) {
  const TemporaryFolder folder;
  Summary summary;
  summary.status = "done";
  summary.precision = "FP32";
  summary.eval.accuracy = 0.5;
  summary.eval.r2 = NAN;
  summary.eval_step = 9;
  summary.best = {.loss = 0.25, .accuracy = 0.75};
  summary.best_step = 7;
  summary.best_metric = "accuracy";
  summary.train_loss = NAN;
  write_summary(folder.path() / "summary.json", summary);
  const json out = json::parse(slurp(folder.path() / "summary.json"));
  for (const char* key : {"status",
                          "ranks",
                          "precision",
                          "epochs",
                          "steps",
                          "samples_per_second",
                          "wall_seconds",
                          "train_loss",
                          "eval_loss",
                          "eval_accuracy",
                          "eval_top5",
                          "eval_macro_f1",
                          "eval_mae",
                          "best_accuracy",
                          "best_macro_f1",
                          "best_mae",
                          "data_wait_fraction",
                          "exposed_comm_fraction",
                          "peak_memory_bytes",
                          "skipped_steps",
                          "saves_left_out",
                          "seconds_to_first_step"}) {
    EXPECT_TRUE(out.contains(key)) << key;
  }
  EXPECT_EQ(out["eval_accuracy"], 0.5);
  EXPECT_EQ(out["eval_r2"], "NaN");
  EXPECT_EQ(out["eval_step"], 9);
  EXPECT_EQ(out["best_step"], 7);
  EXPECT_EQ(out["best_metric"], "accuracy");
  EXPECT_EQ(out["best_eval_loss"], 0.25);
  EXPECT_EQ(out["best_accuracy"], 0.75);
  EXPECT_TRUE(out["eval_macro_f1"].is_null());
  EXPECT_TRUE(out["eval_loss"].is_null());
  EXPECT_EQ(out["train_loss"], "NaN");
  EXPECT_FALSE(out.contains("model_flops_utilization"));
  summary.model_flops_utilization = 0.5;
  summary.padding_share = 0.25;
  write_summary(folder.path() / "summary.json", summary);
  const auto read = parse_summary(slurp(folder.path() / "summary.json"));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->model_flops_utilization, 0.5);
  EXPECT_EQ(read->padding_share, 0.25);
  EXPECT_EQ(read->eval_step, 9);
  EXPECT_EQ(read->best, summary.best);
  EXPECT_EQ(read->best_step, 7);
  EXPECT_EQ(read->best_metric, "accuracy");
}

}  // namespace
}  // namespace trireme::train
