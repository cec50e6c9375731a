// Data that is damaged, missing or late: the policy is followed and counted by all ranks alike, and
// where a run ends the cause is the data, with file and record.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

constexpr double kTimeout = 3;  // of kEndlessRun
constexpr double kBound = 10;   // seconds, of what ends by itself

constexpr const char* kTable = R"(
model { zoo { name: "mlp" hidden: 8 } }
data { csv { train_file: "train.csv" classes: 3 } holdout: 0.25 }
batch { global: 16 }
train { epochs: 3 log_every_steps: 1 }
schedule { learning_rate: 0.01 }
watchdog { timeout_seconds: 3 first_timeout_seconds: 20 }
)";

class Data : public FaultTest {
 protected:
  // 200 lines, of which some do not parse.
  static std::string rows(const std::vector<int>& bad) {
    std::string text;
    for (int line = 1; line <= 200; ++line) {
      const bool is_bad = std::find(bad.begin(), bad.end(), line) != bad.end();
      text += is_bad ? "1,x,0\n" : std::to_string(line) + ",2," + std::to_string(line % 3) + "\n";
    }
    return text;
  }
  // Two ranks, each with a file of its own.
  Outcome train_on(const std::string& mine, const std::string& theirs,
                   const std::vector<std::string>& more) {
    config_ = scratch_.write("table.txtpb", kTable);
    scratch_.write("mine/train.csv", mine);
    scratch_.write("theirs/train.csv", theirs);
    const auto from = [&](const char* folder) {
      std::vector<std::string> arguments = more;
      arguments.insert(arguments.end(), {"--set", "data.root=" + (scratch_ / folder).string()});
      return train(arguments);
    };
    return Program({Program::Group{from("mine"), 1}, Program::Group{from("theirs"), 1}}).wait();
  }
  void expect_bad_data(const Outcome& outcome, const std::string& message) const {
    EXPECT_EQ(outcome.code, 3) << outcome.error;
    EXPECT_LT(outcome.seconds, kBound);
    EXPECT_NE(outcome.error.find(message), std::string::npos) << message << " in\n"
                                                              << outcome.error;
    expect_none_left();
  }
  std::vector<nlohmann::json> records(const std::string& event) const {
    std::vector<nlohmann::json> found;
    std::ifstream file(run_dir() / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      found.push_back(nlohmann::json::parse(line));
      if (found.back()["event"] != event) found.pop_back();
    }
    return found;
  }
};

const std::vector<std::string> kSkip = {"--set", "data.on_bad_record=SKIP"};

// Sample 1300 of kEndlessRun is then read once an epoch, by rank 1 in step 40.
std::vector<std::string> in_order(int threads) {
  return {"--set", "data.shuffle=false",
          "--set", "train.eval_every_steps=0",
          "--set", "data.threads=" + std::to_string(threads)};
}

TEST_F(Data, CorruptRecordsAreLeftOutByAllRanks) {
  const Outcome outcome = train_on(rows({7, 50, 51}), rows({7, 50, 51}), kSkip);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(lines_with(outcome.out, "warning: left out: ").size(), 3u) << outcome.out;
  EXPECT_EQ(lines_with(outcome.out, "mine/train.csv: line 7, column 2: 'x' is not a number").size(),
            1u);
  EXPECT_EQ(lines_with(outcome.out, "data: 3 bad records left out").size(), 1u) << outcome.out;
  EXPECT_EQ(records("start").at(0)["bad_records"], 3);
  EXPECT_EQ(records("eval").back()["samples"], 49);  // a quarter of 197
}

TEST_F(Data, CorruptRecordsEndTheRunUnlessToldOtherwise) {
  expect_bad_data(train_on(rows({7}), rows({7}), {}),
                  "train.csv: line 7, column 2: 'x' is not a number");
}

TEST_F(Data, TheCapEndsTheRun) {
  std::vector<std::string> more = kSkip;
  more.insert(more.end(), {"--set", "data.max_bad_records=2"});
  expect_bad_data(train_on(rows({7, 50, 51}), rows({7, 50, 51}), more),
                  "3 bad records, more than data.max_bad_records, 2; the first: ");
}

TEST_F(Data, RanksThatSeeDifferentDataAreRefused) {
  expect_bad_data(train_on(rows({}), rows({7}), kSkip),
                  "the ranks do not see the same data: rank 0 has 150 training samples (0 bad "
                  "records left out) and 50 to evaluate (0); rank 1 has 149 ");
}

TEST_F(Data, ATruncatedFileIsNamed) {
  scratch_.write("cifar/data_batch_1.bin", std::string(3073 * 40 + 17, '\1'));
  const std::vector<std::string> cifar = {"--set", "data.cifar.train_file=data_batch_1.bin",
                                          "--set", "data.holdout=0.5",
                                          "--set", "data.root=" + (scratch_ / "cifar").string()};
  expect_bad_data(run(train(cifar), 2),
                  "cifar/data_batch_1.bin: record 40: is cut short: the file's 122937 bytes");
}

TEST_F(Data, AMissingFileIsNamed) {
  std::filesystem::create_directories(scratch_ / "cifar");
  expect_bad_data(run(train({"--set", "data.cifar.variant=CIFAR100", "--set",
                             "data.root=" + (scratch_ / "cifar").string()}),
                      2),
                  "cifar: holds no file train.bin or ");
}

TEST_F(Data, SamplesThatCannotBeReadAreLeftOutAndCounted) {
  std::vector<std::string> more = kSkip;
  more.insert(more.end(), {"--set", "train.max_steps=120", "--set", "data.threads=1"});
  const Outcome outcome = broken("data skip rank=1 times=3", 2, more);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_FALSE(
      lines_with(outcome.out, "warning: left out: rank 1: synthetic: cannot be read").empty())
      << outcome.out;
  EXPECT_EQ(lines_with(outcome.out, "data: 3 bad records left out").size(), 1u) << outcome.out;
  int64_t last = 0;
  for (const auto& step : records("step")) last = step.value("bad_records", last);
  EXPECT_EQ(last, 3);
}

TEST_F(Data, SamplesThatCannotBeReadEndTheRunUnlessToldOtherwise) {
  expect_bad_data(broken("data skip rank=1 index=1300", 2, in_order(0)),
                  "synthetic: cannot be read");
}

TEST_F(Data, ADataThreadThatFailsIsNamed) {
  const Outcome outcome = broken("data throw rank=1 index=1300", 2, in_order(2));
  expect_bad_data(outcome,
                  "sample 1300 of epoch 1 (synthetic): could not be read: injected at data");
}

TEST_F(Data, ADataThreadThatStallsIsNamed) {
  expect_verdict(
      broken("data sleep rank=1 index=1300", 2, in_order(2)), kTimeout + 5,
      {"rank 1 (", "data", "waiting for sample 1300 of epoch 1 (synthetic), which worker "},
      {0, 1});
}

TEST_F(Data, AStallWithoutDataThreadsIsNamed) {
  expect_verdict(broken("data sleep rank=1 index=1300", 2, in_order(0)), kTimeout + 5,
                 {"rank 1 (", "data", "waiting for sample "}, {0, 1});
}

TEST_F(Data, AStallOfARankThatIsAloneIsNamed) {
  expect_verdict(broken("data sleep index=1300", 0, in_order(1)), kTimeout + 5,
                 {"rank 0 (", "stuck in data", "waiting for sample "}, {0});
}

TEST_F(Data, AStallInEvaluationIsNamed) {
  expect_verdict(broken("data sleep rank=1 index=3000", 2,
                        {"--set", "data.shuffle=false", "--set", "train.max_steps=1"}),
                 kTimeout + 5, {"rank 1 (", "waiting for sample "}, {0, 1});
}

}  // namespace
}  // namespace trireme::testing
