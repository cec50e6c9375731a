// The data and page that `trireme report` writes. report_test.py opens the page in a browser.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "launch/report/decimation.h"
#include "launch/report/report.h"

namespace trireme::cli {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> noise(size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 1 + 0.1 * std::sin(static_cast<double>(i));
  return values;
}

TEST(Decimation, KeepsAllOfAFewPoints) {
  EXPECT_EQ(points_to_draw(std::vector<double>{3, 1, 2}, 4), (std::vector<size_t>{0, 1, 2}));
  EXPECT_TRUE(points_to_draw({}, 4).empty());
}

TEST(Decimation, KeepsSpikesAndEnds) {
  std::vector<double> values = noise(100000);
  values[54321] = 50;
  values[65432] = -50;
  values[77777] = kNan;
  const std::vector<size_t> drawn = points_to_draw(values, 1000);
  EXPECT_LE(drawn.size(), 1000u);
  EXPECT_GT(drawn.size(), 900u);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
  EXPECT_TRUE(std::adjacent_find(drawn.begin(), drawn.end()) == drawn.end());
  EXPECT_EQ(drawn.front(), 0u);
  EXPECT_EQ(drawn.back(), 99999u);
  EXPECT_TRUE(std::binary_search(drawn.begin(), drawn.end(), 54321u));
  EXPECT_TRUE(std::binary_search(drawn.begin(), drawn.end(), 65432u));
  EXPECT_FALSE(std::binary_search(drawn.begin(), drawn.end(), 77777u));
}

TEST(Decimation, RangesCoverAllPointsOnce) {
  for (const size_t count : {0, 1, 7, 100, 101}) {
    size_t next = 0;
    for (const Range& range : even_ranges(count, 7)) {
      EXPECT_EQ(range.begin, next);
      EXPECT_LT(range.begin, range.end);
      next = range.end;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(Decimation, MeansAreWeightedAndIgnoreNonFiniteValues) {
  const std::vector<double> weights{1, 3, 1};
  EXPECT_DOUBLE_EQ(weighted_mean(std::vector<double>{1, 2, kNan}, weights), 7.0 / 4);
  EXPECT_TRUE(std::isnan(weighted_mean(std::vector<double>{kNan, kNan, kNan}, weights)));
}

train::RunRecords run_of(int64_t steps) {
  train::RunRecords run;
  run.folder = "runs/one";
  for (int64_t step = 1; step <= steps; ++step) {
    train::StepPoint point;
    point.step = step;
    point.train_loss = 1.0 / static_cast<double>(step);
    point.learning_rate = 0.1;
    point.step_ms = 10;
    point.forward_ms = 3;
    point.backward_ms = 5;
    point.exposed_comm_ms = 1;
    point.samples_per_second = 100;
    run.steps.push_back(point);
  }
  return run;
}

TEST(ReportData, FewPointsAreKeptExactly) {
  const train::RunRecords run = run_of(7);
  const auto data = report_data({&run, 1});
  const auto& loss = data["runs"][0]["loss"];
  ASSERT_EQ(loss["values"].size(), 7u);
  EXPECT_EQ(loss["values"][2].get<double>(), 1.0 / 3);
  EXPECT_FALSE(loss.contains("means"));
  EXPECT_EQ(data["runs"][0]["name"], "one");
}

// The shares of a run that has ended are those of all its steps.
TEST(ReportData, HasUtilizationAndPaddingIfTheyAreRecorded) {
  train::RunRecords run = run_of(3);
  EXPECT_TRUE(report_data({&run, 1})["runs"][0]["utilization"].is_null());
  run.steps.back().model_flops_utilization = 0.5;
  run.steps.back().padding_share = 0.25;
  const auto running = report_data({&run, 1})["runs"][0];
  EXPECT_EQ(running["utilization"], 0.5);
  EXPECT_EQ(running["padding"], 0.25);
  EXPECT_EQ(running["paddings"]["values"].back(), 0.25);
  run.summary.emplace().model_flops_utilization = 0.75;
  const auto ended = report_data({&run, 1})["runs"][0];
  EXPECT_EQ(ended["utilization"], 0.75);
  EXPECT_TRUE(ended["padding"].is_null());
}

TEST(ReportData, DistinguishesNonFiniteFromMissingValues) {
  train::RunRecords run = run_of(3);
  run.steps[1].train_loss = kNan;
  run.steps[2].train_loss = std::nullopt;
  run.evaluations = {{.step = 3, .metrics = {.loss = std::numeric_limits<double>::infinity()}}};
  const std::string page = report_page({&run, 1});
  EXPECT_NE(page.find(R"("values":[1.0,"NaN",null])"), std::string::npos);
  EXPECT_NE(page.find(R"("best":null)"), std::string::npos);
  EXPECT_NE(page.find(R"("loss":"Infinity","objective":null,"accuracy":null)"), std::string::npos);
}

TEST(ReportData, TimesAddUpToTheStep) {
  const train::RunRecords run = run_of(5);
  const auto data = report_data({&run, 1});
  const auto mean = data["runs"][0]["times"]["mean"].get<std::vector<double>>();
  EXPECT_EQ(mean, (std::vector<double>{0, 3, 5, 1, 0, 0, 1}));
}

TEST(ReportData, PageOfALongRunIsSmall) {
  const train::RunRecords run = run_of(200000);
  EXPECT_LT(report_page({&run, 1}).size(), size_t{1} << 20);
}

TEST(ReportData, ConfigurationsAreComparedWithTheFirst) {
  std::vector<train::RunRecords> runs(3, run_of(1));
  runs[0].folder = "runs/a/";
  runs[1].folder = "runs/b";
  runs[2].folder = "runs/c";
  runs[1].config.mutable_batch()->set_global(32);
  runs[2].config.set_seed(9);
  const auto data = report_data(runs);
  EXPECT_EQ(data["runs"][0]["name"], "a");
  std::map<std::string, std::vector<std::string>> rows;
  for (const auto& row : data["differences"]) rows[row["path"]] = row["values"];
  EXPECT_EQ(rows["seed"], (std::vector<std::string>{"1", "1", "9"}));
  EXPECT_EQ(rows["batch.global"][1], "32");
  EXPECT_EQ(rows["batch.global"][0], rows["batch.global"][2]);
}

TEST(ReportData, RunsOfTheSameNameGetLongerNames) {
  std::vector<train::RunRecords> runs(2, run_of(1));
  runs[0].folder = "a/run";
  runs[1].folder = "b/run";
  const auto data = report_data(runs);
  EXPECT_EQ(data["runs"][0]["name"], "a/run");
  EXPECT_EQ(data["runs"][1]["name"], "b/run");
}

TEST(ReportData, ContainsTheScoresOfEachClass) {
  train::RunRecords run = run_of(1);
  run.evaluations = {{.step = 1, .metrics = {.loss = 1, .accuracy = 0.5, .macro_f1 = 0.25}}};
  run.evaluation = nlohmann::json::parse(
      R"({"step":1,"classes":["cat","dog"],"per_class":[7,)"
      R"({"precision":0.5,"recall":1,"f1":"NaN","support":3,"html":"<b>"}]})");
  const auto data = report_data({&run, 1});
  const auto& scores = data["runs"][0]["confusion"]["per_class"];
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_TRUE(scores[0]["precision"].is_null());
  EXPECT_EQ(scores[1]["recall"], 1);
  EXPECT_EQ(scores[1]["support"], 3);
  EXPECT_FALSE(scores[1].contains("html"));
  const auto& evaluations = data["runs"][0]["evaluations"];
  EXPECT_EQ(evaluations["last"]["macro_f1"], 0.25);
  EXPECT_EQ(evaluations["macro_f1"]["values"][0], 0.25);
  EXPECT_TRUE(evaluations["top5"].is_null()) << "no run has one";
}

TEST(ReportData, IgnoresInvalidPartsOfAnEvaluation) {
  train::RunRecords run = run_of(1);
  run.evaluation = nlohmann::json::parse(
      R"({"step":"x","classes":[1,"dog"],"confusion":[[1,2],[3]],)"
      R"("mistakes":[7,{"label":1,"predicted":0,"probability":0.9,"png":"\" onerror=\"x"}]})");
  const auto data = report_data({&run, 1});
  const auto& confusion = data["runs"][0]["confusion"];
  EXPECT_TRUE(confusion["matrix"].is_null());
  EXPECT_EQ(confusion["classes"], (std::vector<std::string>{"", "dog"}));
  ASSERT_EQ(confusion["mistakes"].size(), 1u);
  EXPECT_FALSE(confusion["mistakes"][0].contains("png"));
}

size_t count_of(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(ReportPage, EscapesHostileNames) {
  const train::RunRecords plain = run_of(1);
  train::RunRecords hostile = plain;
  hostile.folder = "runs/</script><script>alert(1)</script><!--";
  hostile.config_text = "# </script> {{data}} \xff\xfe";
  const std::string page = report_page({&hostile, 1});
  EXPECT_EQ(count_of(page, "<script"), count_of(report_page({&plain, 1}), "<script"));
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(page.find(R"(runs/\u003c/script\u003e)"), std::string::npos);
}

TEST(ReportPage, IsSelfContained) {
  const train::RunRecords run = run_of(1);
  const std::string page = report_page({&run, 1});
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  // The only URL is the XML namespace of SVG, which is not loaded.
  EXPECT_EQ(count_of(page, "://"), count_of(page, "http://www.w3.org/2000/svg"));
  EXPECT_EQ(page.find("{{"), std::string::npos);
}

}  // namespace
}  // namespace trireme::cli
