// End-to-end tests of `trireme runs` with finished, dead and damaged runs.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using Json = nlohmann::json;

const char* const kTiny = R"(
model { zoo { name: "mlp" hidden: 16 } }
data { synthetic { shape: [8] count: 100 eval_count: 10 } }
batch { global: 32 }
train { epochs: 2 }
schedule { learning_rate: 0.1 }
)";

// One finished run, one that ended without a message, one damaged, and a folder that is not a run.
class Runs : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string config = scratch_.write("tiny.txtpb", kTiny);
    const Outcome done = run({"train", config, "--run-dir", (scratch_ / "runs/good").string()});
    ASSERT_EQ(done.code, 0) << done.error;
    scratch_.write("runs/below/dead/config.txtpb", kTiny);
    scratch_.write("runs/below/dead/metrics.jsonl",
                   R"({"event":"step","step":3,"epoch":0,"train_loss":1.5})"
                   "\n");
    ASSERT_EQ(::mkfifo((scratch_ / "runs/below/dead/.lock").c_str(), 0600), 0);  // must not block
    scratch_.write("runs/garbage/config.txtpb", "modle {");
    scratch_.write("runs/garbage/metrics.jsonl", "not JSON\n");
    scratch_.write("runs/no-run/notes.txt", "");
  }

  std::vector<Json> list(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"runs", (scratch_ / "runs").string(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return Json::parse(outcome.out);
  }

  const Scratch scratch_;
};

TEST_F(Runs, AreListedWithTheirStatus) {
  std::map<std::string, Json> by_name;
  for (const Json& one : list()) by_name[one["name"]] = one;
  ASSERT_EQ(by_name.size(), 3u);
  const Json& good = by_name.at("good");
  EXPECT_EQ(good["status"], "done");
  EXPECT_EQ(good["ended_by"], "epochs");
  EXPECT_EQ(good["model"], "mlp");
  EXPECT_EQ(good["step"], 8);
  EXPECT_EQ(good["planned_steps"], 8);
  EXPECT_EQ(good["ranks"], 1);
  EXPECT_GT(good["samples_per_second"].get<double>(), 0);
  EXPECT_GE(good["best_accuracy"].get<double>(), 0);
  EXPECT_GE(good["best_macro_f1"].get<double>(), 0);
  EXPECT_TRUE(good["best_r2"].is_null());
  // As in its summary.
  const Json summary = Json::parse(read_file(scratch_ / "runs/good/summary.json"));
  for (const char* field : {"best_metric", "best_step", "best_eval_loss", "best_accuracy",
                            "eval_step", "eval_loss", "eval_accuracy"}) {
    EXPECT_EQ(good[field], summary[field]) << field;
  }
  EXPECT_TRUE(by_name.at("below/dead")["best_macro_f1"].is_null());
  EXPECT_EQ(by_name.at("below/dead")["status"], "dead");
  EXPECT_EQ(by_name.at("below/dead")["train_loss"], 1.5);
  EXPECT_NE(by_name.at("garbage")["problem"], "");

  const Outcome table = run({"runs", (scratch_ / "runs").string()});
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(table.out.starts_with("run ")) << table.out;
  for (const char* words : {"good", "below/dead", "garbage: ", "2/2", "macro F1"}) {
    EXPECT_NE(table.out.find(words), std::string::npos) << words << " in\n" << table.out;
  }
}

// With 100 samples, an epoch has 4 steps of 32 samples, or 10 steps of 10.
TEST_F(Runs, CountEpochsBySamplesWhenTheBatchChanges) {
  const std::string config = scratch_.write("tiny.txtpb", kTiny);
  const auto train = [&](const std::vector<std::string>& assignments) {
    std::vector<std::string> words = {"train", config, "--run-dir",
                                      (scratch_ / "runs/two").string()};
    for (const std::string& assignment : assignments) {
      words.insert(words.end(), {"--set", assignment});
    }
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
  };
  const auto row = [&] {
    for (const Json& one : list()) {
      if (one["name"] == "two") return one;
    }
    return Json();
  };
  train({"train.epochs=6", "train.max_steps=20"});
  EXPECT_EQ(row()["epochs"], 5);
  train({"train.epochs=6", "batch.global=10"});
  EXPECT_EQ(row()["step"], 30);
  EXPECT_EQ(row()["planned_steps"], 30);
  EXPECT_EQ(row()["epochs"], 6);
  EXPECT_EQ(row()["planned_epochs"], 6);
  const Outcome table = run({"runs", (scratch_ / "runs").string()});
  EXPECT_NE(table.out.find("6/6"), std::string::npos) << table.out;
}

TEST_F(Runs, AreSorted) {
  EXPECT_EQ(list({"--sort", "name"})[0]["name"], "below/dead");
  EXPECT_EQ(list({"--sort", "best"})[0]["name"], "good");
  EXPECT_EQ(list({"--sort", "step"})[0]["name"], "good");
}

TEST(RunsCommand, RunsWithoutMetricsHaveNoDate) {
  const Scratch scratch;
  scratch.write("run/config.txtpb", "");
  const Outcome outcome = run({"runs", scratch.path().string()});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("dead"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find(":"), std::string::npos) << outcome.out;
}

TEST(RunsCommand, ReportsFoldersWithoutRuns) {
  const Scratch scratch;
  const Outcome none = run({"runs", scratch.path().string()});
  EXPECT_EQ(none.code, 0);
  EXPECT_TRUE(none.out.starts_with("no runs in ")) << none.out;
  const Outcome missing = run({"runs", (scratch / "none").string()});
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.error.find("no such folder"), std::string::npos) << missing.error;
}

}  // namespace
}  // namespace trireme::testing
