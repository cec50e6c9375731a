// A run that resumes detects whether its data has changed.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// An epoch has 12 steps if the file has 240 rows.
constexpr const char* kConfig = R"(
model { zoo { name: "mlp" hidden: 8 } }
data { csv { train_file: "x.csv" } holdout: 0.2 }
batch { global: 16 }
train { epochs: 4 device: "cpu" }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.01 }
)";

struct Row {
  int a = 0, b = 0, label = 0;
};

std::vector<Row> rows(int count, int classes = 10) {
  std::vector<Row> all;
  for (int i = 0; i < count; ++i) all.push_back({i % 17, i % 23, i % classes});
  return all;
}

class DataChange : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = scratch_.write("run.txtpb", kConfig);
    write(rows(240));
    const Outcome first = train({"--set", "train.max_steps=22"});
    ASSERT_EQ(first.code, 0) << first.error;
  }

  void write(const std::vector<Row>& rows) const {
    std::string text;
    for (const Row& row : rows) text += fmt::format("{},{},{}\n", row.a, row.b, row.label);
    fs::create_directories(data_);
    std::ofstream(data_ / "x.csv") << text;
  }

  Outcome train(const std::vector<std::string>& more = {}, int ranks = 0) const {
    std::vector<std::string> arguments = {
        "train", config_, "--run-dir", run_dir().string(), "--set", "data.root=" + data_.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, ranks);
  }
  fs::path run_dir() const { return scratch_ / "run"; }

  Scratch scratch_;
  fs::path data_ = scratch_ / "data";
  std::string config_;
};

TEST_F(DataChange, IsAnErrorThatNamesTheChange) {
  const std::string config_before = read_file(run_dir() / "config.txtpb");
  std::vector<Row> permuted = rows(240), reversed = rows(240), zeroed = rows(240);
  std::rotate(permuted.begin(), permuted.begin() + 1, permuted.end());
  for (size_t i = 0; i < permuted.size(); ++i) {
    const int label = permuted[i].label;
    permuted[i] = rows(240)[i];
    permuted[i].label = label;
  }
  std::ranges::reverse(reversed);
  for (Row& row : zeroed) row.a = row.b = 0;
  struct Case {
    std::vector<Row> rows;
    std::vector<std::string> parts;
  };
  for (const auto& [changed, parts] : std::vector<Case>{
           {permuted, {"training targets: checksum "}},
           {reversed, {"training inputs: checksum ", "training targets: checksum "}},
           {zeroed, {"training inputs: checksum "}},
           {rows(120), {"training samples: 192 -> 96", "evaluation samples: 48 -> 24"}},
           {rows(300), {"training samples: 192 -> 240", "evaluation samples: 48 -> 60"}},
           {rows(240, 4), {"training classes: 10 -> 4"}}}) {
    SCOPED_TRACE(parts[0]);
    write(changed);
    const Outcome refused = train();
    EXPECT_EQ(refused.code, 3) << refused.out << refused.error;
    EXPECT_THAT(refused.error,
                HasSubstr("step-00000022: the data has changed since it was saved: "));
    for (const std::string& part : parts) EXPECT_THAT(refused.error, HasSubstr(part));
    EXPECT_THAT(refused.error, HasSubstr("--accept-data-change"));
    EXPECT_EQ(read_file(run_dir() / "config.txtpb"), config_before);
    EXPECT_EQ(losses_of(run_dir()).size(), 22u);
  }
}

// Step 22 has used 160 samples of its epoch, more than the new data has.
TEST_F(DataChange, IsAcceptedWithTheFlag) {
  write(rows(180));
  const Outcome accepted = train({"--accept-data-change"}, 2);
  EXPECT_EQ(accepted.code, 0) << accepted.error;
  EXPECT_THAT(accepted.out, HasSubstr("training samples: 192 -> 144; evaluation samples: 48 -> 36; "
                                      "accepted"));
  EXPECT_THAT(accepted.out, HasSubstr("the samples held out for evaluation have changed"));
  // Two epochs of 9 steps after the abandoned one.
  EXPECT_EQ(losses_of(run_dir()).size(), 22u + 2 * 9);
  const Outcome again = train({"--set", "train.epochs=5"});
  EXPECT_EQ(again.code, 0) << again.error;
  EXPECT_THAT(again.out, Not(HasSubstr("the data")));
}

// Changing the holdout changes the data; the message names the field, not the data.
TEST_F(DataChange, IsAttributedToAChangedConfiguration) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--accept-data-change"}}) {
    std::vector<std::string> words = {"--set", "data.holdout=0.3"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome refused = train(words);
    EXPECT_EQ(refused.code, 2) << refused.error;
    EXPECT_THAT(refused.error, HasSubstr("data.holdout: 0.2 -> 0.3"));
    EXPECT_THAT(refused.error, Not(HasSubstr("--accept-data-change")));
  }
}

TEST_F(DataChange, IsReportedByConfigCheck) {
  const auto check = [&](const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"config",
                                      "check",
                                      config_,
                                      "--run-dir",
                                      run_dir().string(),
                                      "--set",
                                      "data.root=" + data_.string()};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome same = check({"--set", "batch.global=24"});
  EXPECT_EQ(same.code, 0) << same.error;
  EXPECT_THAT(same.out, HasSubstr("changed   batch.global: 16 -> 24"));
  EXPECT_THAT(same.out, HasSubstr("has checkpoints, the newest is step-00000022"));
  const Outcome network = check({"--set", "model.zoo.hidden=9"});
  EXPECT_EQ(network.code, 2) << network.out;
  EXPECT_THAT(network.error, HasSubstr("model.zoo.hidden: [8] -> [9]"));
  write(rows(300));
  const Outcome data = check();
  EXPECT_EQ(data.code, 3) << data.out;
  EXPECT_THAT(data.error, HasSubstr("training samples: 192 -> 240"));
}

// The numbers are the same, but later tables would be read by the new names.
TEST_F(DataChange, RenamedColumnsAreAnError) {
  const auto name_columns = [&](const std::string& names) {
    std::ostringstream text;
    for (const Row& row : rows(240)) text << fmt::format("{},{},{}\n", row.a, row.b, row.label);
    std::ofstream(data_ / "x.csv") << names << "\n" << text.str();
  };
  fs::remove_all(run_dir());
  name_columns("a,b,label");
  const Outcome first = train({"--set", "train.max_steps=5"});
  ASSERT_EQ(first.code, 0) << first.error;
  name_columns("b,a,label");
  const Outcome renamed = train();
  EXPECT_EQ(renamed.code, 3) << renamed.out;
  EXPECT_THAT(renamed.error, HasSubstr("training columns: a, b, label -> b, a, label"));
  const Outcome accepted = train({"--accept-data-change"});
  EXPECT_EQ(accepted.code, 0) << accepted.error;
}

// The results of an older checkpoint must not be mistaken for those of the newest, or replace them.
TEST_F(DataChange, EvalNamesItsCheckpoint) {
  const Outcome newest = run({"eval", run_dir().string()});
  EXPECT_THAT(newest.out, HasSubstr("after step 22: "));
  const auto saved = [&] { return read_file(run_dir() / "evaluation.json"); };
  const std::string before = saved();
  const Outcome older = run({"eval", (run_dir() / "checkpoints" / "step-00000012").string()});
  EXPECT_THAT(older.out, HasSubstr("after step 12: "));
  EXPECT_EQ(saved(), before);
  EXPECT_TRUE(fs::exists(run_dir() / "evaluation-step-00000012.json"));

  fs::resize_file(run_dir() / "checkpoints" / "step-00000022" / "model.safetensors", 40);
  const Outcome damaged = run({"eval", run_dir().string()}, 2);
  EXPECT_EQ(damaged.code, 0);
  EXPECT_THAT(damaged.error, HasSubstr("warning: "));
  EXPECT_THAT(damaged.error, HasSubstr("step-00000022"));
  EXPECT_THAT(damaged.out, HasSubstr("after step 12: "));
}

// The configuration of the latest start may not be theirs.
TEST_F(DataChange, CheckpointsAreUsedWithTheConfigurationTheyWereTrainedWith) {
  const std::string older = (run_dir() / "checkpoints" / "step-00000012").string();
  const std::string table = scratch_.write("rows.csv", "1,2\n3,4\n5,6\n");
  const auto outputs = [&] {
    const fs::path exported = scratch_ / "exported.onnx";
    std::vector<std::string> all = {run({"eval", older, "--json"}).out,
                                    run({"predict", older, table}).out};
    EXPECT_EQ(run({"export", older, exported.string()}).code, 0);
    all.push_back(read_file(exported));
    all[0].erase(all[0].find("\"seconds\""));
    return all;
  };
  const auto before = outputs();
  const Outcome changed = train({"--set", "data.normalize.mean=9", "--set", "data.csv.scale=7"});
  ASSERT_EQ(changed.code, 0) << changed.error;
  EXPECT_EQ(outputs(), before);
}

// The labels may be missing, and skipped rows do not change the numbers of the others.
TEST_F(DataChange, PredictSkipsBadRowsOfATable) {
  const std::string table = scratch_.write("rows.csv", "1,2,\n3,oops,\n5,6,?\n");
  const Outcome some = run({"predict", run_dir().string(), table, "--format", "csv"});
  EXPECT_EQ(some.code, 3) << some.error;
  EXPECT_THAT(some.out, HasSubstr("rows.csv: record 0,"));
  EXPECT_THAT(some.out, HasSubstr("rows.csv: record 2,"));
  EXPECT_THAT(some.out, Not(HasSubstr("record 1,")));
  EXPECT_THAT(some.error, HasSubstr("rows.csv: line 2, column 2: 'oops' is not a number"));
  EXPECT_EQ(run({"predict", run_dir().string(), table, "--skip-bad"}).code, 0);
}

TEST_F(DataChange, IsReportedByEval) {
  const auto eval = [&](const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"eval", run_dir().string()};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, 2);
  };
  const Outcome same = eval();
  EXPECT_EQ(same.code, 0) << same.error;
  EXPECT_THAT(same.error, Not(HasSubstr("warning")));
  write(rows(300));
  const Outcome changed = eval();
  EXPECT_EQ(changed.code, 0) << changed.error;
  EXPECT_THAT(changed.error,
              HasSubstr("warning: the evaluation data differs from that of the checkpoint's run: "
                        "evaluation samples: 48 -> 60\n"));
  const Outcome other = eval({"--data", (data_ / "x.csv").string()});
  EXPECT_EQ(other.code, 0) << other.error;
  EXPECT_THAT(other.error, Not(HasSubstr("warning")));
}

TEST_F(DataChange, RenamedCheckpointsAreReported) {
  const Outcome back = train({"--resume", (run_dir() / "checkpoints" / "step-00000012").string(),
                              "--set", "train.max_steps=13"});
  EXPECT_EQ(back.code, 0) << back.error;
  EXPECT_THAT(back.error, HasSubstr("step-00000022 does not belong to the run that resumes from "
                                    "step 12: renamed to set-aside-step-00000022\n"));
}

TEST_F(DataChange, MistypedResumeGetsASuggestion) {
  const Outcome mistyped = train({"--resume", "nver"});
  EXPECT_EQ(mistyped.code, 3) << mistyped.error;
  EXPECT_THAT(mistyped.error, HasSubstr("--resume nver: no such folder; did you mean 'never'?"));
}

TEST_F(DataChange, IsNotReportedIfOnlyThePathOrTimeDiffers) {
  fs::rename(data_, scratch_ / "elsewhere");
  data_ = scratch_ / "elsewhere";
  fs::last_write_time(data_ / "x.csv", fs::file_time_type());
  const Outcome outcome = train({"--set", "data.threads=2"}, 3);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, Not(HasSubstr("the data")));
  EXPECT_EQ(losses_of(run_dir()).size(), 48u);
}

}  // namespace
}  // namespace trireme::testing
