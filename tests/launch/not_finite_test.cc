// NaN and infinities in the results of a run do not end it, and are written the same way
// everywhere.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json parsed(const fs::path& file) { return Json::parse(read_file(file)); }

std::vector<Json> events(const fs::path& run_dir, const std::string& kind) {
  std::vector<Json> found;
  std::istringstream text(read_file(run_dir / "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    Json event = Json::parse(line);
    if (event["event"] == kind) found.push_back(std::move(event));
  }
  return found;
}

// Three classes of two numbers, which are multiplied by 1e6. That makes one row of the evaluation
// file infinite.
class NotFinite : public ::testing::Test {
 protected:
  std::string rows(int count, const std::string& extra) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += std::to_string(i % 3 - 1) + "." + std::to_string(i % 7) + "e-6," +
              std::to_string(i % 3) + "e-6," + std::to_string(i % 3) + "\n";
    }
    return text + extra;
  }
  // `target` may make it a regression.
  std::string config(const std::string& target, const std::string& loss) {
    const char* const units = target.empty() ? "3" : "1";
    return fmt::format(R"(
      model {{ network {{ name: "net" layer {{ dense {{ units: {} }} }} layer {{ {} {{}} }} }} }}
      data {{
        root: "{}"
        csv {{ train_file: "train.csv" eval_file: "eval.csv" scale: 1e6 {} }}
      }}
      batch {{ global: 16 }} train {{ epochs: 6 device: "cpu" }}
      schedule {{ learning_rate: 0.1 }} metrics {{ csv: true }}
    )",
                       units, loss, scratch_.path().string(), target);
  }
  void SetUp() override {
    scratch_.write("train.csv", rows(96, ""));
    scratch_.write("eval.csv", rows(30, "3e38,0,1\n"));
  }
  std::vector<std::string> train(const std::string& file,
                                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"train", file, "--run-dir", run_dir().string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  fs::path run_dir() const { return scratch_ / "run"; }
  std::string best() const { return read_file(run_dir() / "checkpoints/best"); }

  Scratch scratch_;
};

TEST_F(NotFinite, OverflowInTheEvaluationDoesNotEndTheRun) {
  const std::string file = scratch_.write("run.txtpb", config("", "softmax_cross_entropy"));
  const Outcome outcome = run(train(file), 2);
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("warning: the loss of the evaluation after step"));
  const Json summary = parsed(run_dir() / "summary.json");
  EXPECT_EQ(summary["status"], "done");
  EXPECT_EQ(summary["eval_loss"], "NaN");
  EXPECT_GT(summary["eval_accuracy"].get<double>(), 0.3);
  EXPECT_LT(summary["eval_accuracy"].get<double>(), 1) << "the infinite sample is a mistake";
  for (const Json& event : events(run_dir(), "eval")) EXPECT_EQ(event["eval_loss"], "NaN");
  EXPECT_THAT(read_file(run_dir() / "evaluations.csv"), HasSubstr(",31,NaN,,0."));
  EXPECT_THAT(best(), HasSubstr("step-")) << "the accuracy still determines the best";

  const Json evaluation = parsed(run_dir() / "evaluation.json");
  EXPECT_EQ(evaluation["loss"], "NaN");
  EXPECT_EQ(evaluation["mistakes"][0]["probability"], "NaN");
  EXPECT_EQ(evaluation["mistakes"][0]["predicted"], -1);
  EXPECT_EQ(evaluation["mistakes"][0]["index"], 30);
  int64_t support = 0, predicted = 0;
  for (const Json& of_class : evaluation["per_class"]) {
    support += of_class["support"].get<int64_t>();
    predicted += of_class["predicted"].get<int64_t>();
  }
  EXPECT_EQ(support, 31);
  EXPECT_EQ(predicted, 30) << "the infinite sample has no predicted class";

  const Outcome again = run({"eval", run_dir().string(), "--json"}, 2);
  ASSERT_EQ(again.code, 0) << again.error;
  EXPECT_EQ(Json::parse(again.out)["eval_loss"], "NaN");
  const Outcome details = run({"eval", run_dir().string(), "--details"});
  EXPECT_THAT(details.out, HasSubstr("sample 30: 1, outputs that are not finite"));

  const Outcome longer = run(train(file, {"--set", "train.epochs=7"}));
  EXPECT_EQ(longer.code, 0) << longer.error;
  EXPECT_THAT(longer.out, HasSubstr("resumed from"));
}

TEST_F(NotFinite, BestLossOfARegressionIsNeverInfinite) {
  const std::string file =
      scratch_.write("run.txtpb", config("regression: true", "mean_squared_error"));
  const Outcome outcome = run(train(file));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.error;
  EXPECT_EQ(parsed(run_dir() / "summary.json")["eval_loss"], "Infinity");
  EXPECT_FALSE(fs::exists(run_dir() / "checkpoints/best"));
  const Outcome list = run({"runs", scratch_.path().string(), "--json"});
  EXPECT_EQ(Json::parse(list.out)[0]["best_eval_loss"], Json());
  EXPECT_EQ(run({"report", run_dir().string()}).code, 0);
  const Json evaluated = Json::parse(run({"eval", run_dir().string(), "--json"}).out);
  EXPECT_TRUE(evaluated.contains("eval_loss"));
  EXPECT_FALSE(evaluated.contains("eval_accuracy")) << "a regression has no accuracy";
  EXPECT_FALSE(evaluated.contains("eval_top5"));
  EXPECT_EQ(evaluated["eval_mae"], "Infinity");
  EXPECT_EQ(evaluated["eval_r2"], "-Infinity");
  EXPECT_THAT(read_file(run_dir() / "report.html"), HasSubstr(R"("eval_loss":"Infinity")"));

  const std::string wild = scratch_.write("wild.csv", "3e38,0\n1e-6,1e-6\n");
  const Outcome lines = run({"predict", run_dir().string(), wild, "--format", "jsonl"});
  ASSERT_EQ(lines.code, 0) << lines.error;
  const Json first = Json::parse(lines.out.substr(0, lines.out.find('\n')));
  EXPECT_TRUE(first["values"][0].is_string()) << first;
}

TEST_F(NotFinite, RunOfOnlySkippedStepsIsSaved) {
  scratch_.write("eval.csv", rows(30, ""));
  const std::string file = scratch_.write("run.txtpb", config("", "softmax_cross_entropy"));
  const Outcome outcome =
      run(train(file, {"--set", "schedule.learning_rate=3e38", "--set", "data.csv.scale=1e8",
                       "--set", "checks.non_finite=SKIP", "--set", "checks.max_skipped=1000"}));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.error;
  const Json summary = parsed(run_dir() / "summary.json");
  EXPECT_EQ(summary["status"], "done");
  EXPECT_EQ(summary["eval_loss"], "NaN");
  EXPECT_EQ(summary["eval_accuracy"], 0);
  // All 36 steps but the first are skipped. The first five of these are reported, and then the 8th,
  // 16th and 32nd.
  EXPECT_EQ(summary["skipped_steps"], 35);
  EXPECT_THAT(outcome.out, HasSubstr("36 steps (35 skipped) in "));
  EXPECT_EQ(events(run_dir(), "not_finite").size(), 35u);
  size_t reported = 0;
  for (size_t at = 0; (at = outcome.out.find("skipped the step", at)) != std::string::npos; ++at) {
    ++reported;
  }
  EXPECT_EQ(reported, 8u) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("skipped the step; so far 32 steps"));
  EXPECT_FALSE(fs::exists(run_dir() / "checkpoints/best"));
  EXPECT_EQ(run({"eval", run_dir().string()}).code, 0);
  const Outcome lines = run(
      {"predict", run_dir().string(), scratch_.write("x.csv", "1e-6,1e-6\n"), "--format", "jsonl"});
  ASSERT_EQ(lines.code, 0) << lines.error;
  EXPECT_TRUE(Json::parse(lines.out).contains("top"));
}

// What rank 0 prints is in its log too, where `trireme runs` finds it.
TEST_F(NotFinite, FailureIsInTheLog) {
  scratch_.write("eval.csv", rows(30, ""));
  const std::string file = scratch_.write("run.txtpb", config("", "softmax_cross_entropy"));
  for (int ranks : {0, 2}) {
    fs::remove_all(run_dir());
    const Outcome outcome =
        run(train(file, {"--set", "schedule.learning_rate=3e38", "--set", "data.csv.scale=1e8"}),
            ranks);
    EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.error;
    std::string last;
    std::istringstream log(read_file(run_dir() / "log/rank-0.log"));
    for (std::string line; std::getline(log, line);) last = line;
    EXPECT_THAT(last, HasSubstr("is not finite"));
    EXPECT_THAT(outcome.error, HasSubstr("trireme: " + last));
    EXPECT_THAT(run({"runs", run_dir().string()}).out, HasSubstr("failed"));
  }
}

}  // namespace
}  // namespace trireme::testing
