#include "trainer/metrics.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "temporary_folder.h"

namespace trireme {
namespace {

using nlohmann::json;

void no_warning(const std::string& text) { FAIL() << text; }

StepRecord record(int64_t step) {
  StepRecord r;
  r.step = step;
  r.train_loss = 1.0f / static_cast<float>(step);
  r.learning_rate = 0.1;
  return r;
}

std::vector<json> lines(const std::filesystem::path& path) {
  std::vector<json> all;
  std::istringstream text(slurp(path));
  for (std::string line; std::getline(text, line);) all.push_back(json::parse(line));
  return all;
}

TEST(Metrics, StepsCarryEveryDigit) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsFile file(path, 0, no_warning);
    StepRecord r = record(3);
    r.epoch = 1;
    r.samples_per_second = 12345.6;
    r.step_ms = 1.25;
    r.data_wait_ms = 0.5;
    r.exposed_comm_ms = 0.25;
    r.parameter_checksum = 0xABC;
    r.loss_scale = 65536;
    r.skipped_steps = 2;
    file.write(r);
    file.write(R"({"event":"eval","step":3})");
  }
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
  EXPECT_EQ(all[0]["parameter_checksum"], "0000000000000abc");
  EXPECT_EQ(all[0]["loss_scale"], 65536);
  EXPECT_EQ(all[0]["skipped_steps"], 2);
  EXPECT_EQ(all[1]["event"], "eval");
}

TEST(Metrics, ResumingCutsBackToTheCheckpoint) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsFile file(path, 0, no_warning);
    for (int step = 1; step <= 5; ++step) file.write(record(step));
  }
  spill(path, slurp(path) + R"({"event":"step","st)");  // killed while writing
  {
    MetricsFile file(path, 3, no_warning);
    file.write(record(4));
  }
  const auto all = lines(path);
  ASSERT_EQ(all.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(all[static_cast<size_t>(i)]["step"], i + 1);
}

// A checkpoint is written beside training, so that its line comes after those of later steps.
TEST(Metrics, ALateLineDoesNotKeepWhatStandsBeforeIt) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  const std::string saved = R"({"event":"checkpoint","step":2})";
  const auto steps_after = [&](int resumed_at) {
    MetricsFile(path, resumed_at, no_warning).write(record(resumed_at + 1));
    std::vector<int> steps;
    for (const auto& line : lines(path)) steps.push_back(line["step"]);
    return steps;
  };
  {
    MetricsFile file(path, 0, no_warning);
    for (int step = 1; step <= 4; ++step) file.write(record(step));
    file.write(saved);
    file.write(record(5));
  }
  EXPECT_EQ(steps_after(4), (std::vector{1, 2, 3, 4, 2, 5}));
  EXPECT_EQ(steps_after(2), (std::vector{1, 2, 3}));
  spill(path, slurp(path) + saved + "\n");
  EXPECT_EQ(steps_after(3), (std::vector{1, 2, 3, 2, 4}));
}

// Found by tests/fuzz: a line that is no record ended the run.
TEST(Metrics, AnEventThatIsANumber) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  const std::string odd = R"({"event":7,"step":2})";
  spill(path, odd + "\n" + R"({"event":"step","step":9})" + "\n");
  { const MetricsFile file(path, 3, no_warning); }
  EXPECT_EQ(slurp(path), odd + "\n");
}

TEST(Metrics, AFreshRunBeginsWithAnEmptyFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  spill(path, "{\"event\":\"step\",\"step\":1}\n");
  { const MetricsFile file(path, 0, no_warning); }
  EXPECT_EQ(slurp(path), "");
}

// A limit on the size of files stands in for a full disk.
TEST(Metrics, AFullDiskIsReportedOnceAndNeverThrows) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  std::vector<std::string> warnings;
  MetricsFile file(path, 0, [&](const std::string& text) { warnings.push_back(text); });
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  for (int step = 1; step <= 5; ++step) {
    file.write(record(step));
    file.flush();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find(path.string()), std::string::npos);
}

TEST(Metrics, SummaryHasItsFieldsAndNullsWhereNothingWasMeasured) {
  const TemporaryFolder folder;
  Summary summary;
  summary.status = "done";
  summary.precision = "FP32";
  summary.eval_accuracy = 0.5;
  write_summary(folder.path() / "summary.json", summary);
  const json out = json::parse(slurp(folder.path() / "summary.json"));
  for (const char* key :
       {"status", "ranks", "precision", "epochs", "steps", "samples_per_second", "wall_seconds",
        "train_loss", "eval_loss", "eval_accuracy", "eval_top5", "data_wait_fraction",
        "exposed_comm_fraction", "peak_memory_bytes", "saves_left_out", "seconds_to_first_step"}) {
    EXPECT_TRUE(out.contains(key)) << key;
  }
  EXPECT_EQ(out["eval_accuracy"], 0.5);
  EXPECT_TRUE(out["eval_loss"].is_null());
}

}  // namespace
}  // namespace trireme
