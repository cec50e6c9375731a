// A run that goes on finds its data as it was, or says what has changed.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// An epoch is 12 steps while the file has 240 rows.
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

TEST_F(DataChange, IsRefusedAndNamed) {
  const std::string config_before = read_file(run_dir() / "config.txtpb");
  std::vector<Row> permuted = rows(240), reversed = rows(240), zeroed = rows(240);
  std::ranges::rotate(permuted, permuted.begin() + 1);
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
                HasSubstr("step-00000022: the data is not what it was saved from: "));
    for (const std::string& part : parts) EXPECT_THAT(refused.error, HasSubstr(part));
    EXPECT_THAT(refused.error, HasSubstr("--accept-data-change"));
    EXPECT_EQ(read_file(run_dir() / "config.txtpb"), config_before);
    EXPECT_EQ(losses_of(run_dir()).size(), 22u);
  }
}

// Step 22 has used 160 samples of its epoch, which the new data does not have.
TEST_F(DataChange, IsAcceptedWhenAskedFor) {
  write(rows(180));
  const Outcome accepted = train({"--accept-data-change"}, 2);
  EXPECT_EQ(accepted.code, 0) << accepted.error;
  EXPECT_THAT(accepted.out, HasSubstr("training samples: 192 -> 144; evaluation samples: 48 -> 36; "
                                      "accepted"));
  // Two epochs of 9 steps after the one that was given up.
  EXPECT_EQ(losses_of(run_dir()).size(), 22u + 2 * 9);
  const Outcome again = train({"--set", "train.epochs=5"});
  EXPECT_EQ(again.code, 0) << again.error;
  EXPECT_THAT(again.out, Not(HasSubstr("the data")));
}

TEST_F(DataChange, IsNotSeenWhereThereIsNone) {
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
