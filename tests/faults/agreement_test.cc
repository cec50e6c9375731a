// Differences between ranks must be reported, before the first step or in the first mismatched
// all-reduce.
#include <fmt/format.h>

#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kBound = 10;  // seconds

class Agreement : public FaultTest {
 protected:
  // Starts two equal ranks and a third that differs.
  Outcome start(const std::vector<std::string>& common, const std::vector<std::string>& other,
                bool faulty = false) {
    return Program({Program::Group{train(common), 2}, Program::Group{train(other), 1, faulty}})
        .wait();
  }

  // Expects all ranks to end with one message, before anything is written.
  void expect_refused(const Outcome& outcome, const std::vector<std::string>& fragments,
                      int code = 2) {
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.error;
    EXPECT_LT(outcome.seconds, kBound);
    const auto lines = lines_with(outcome.error, "rank 2 differs from rank 0:");
    EXPECT_EQ(lines.size(), 1u) << outcome.error;
    for (const std::string& fragment : fragments) {
      EXPECT_NE(outcome.error.find(fragment), std::string::npos) << fragment << " in\n"
                                                                 << outcome.error;
    }
    EXPECT_FALSE(fs::exists(run_dir() / "metrics.jsonl"));
    expect_none_left();
  }
};

TEST_F(Agreement, RefusesADifferentConfiguration) {
  const std::string other = scratch_.write("other.txtpb", fmt::format("{}seed: 3", kEndlessRun));
  Program program(
      {Program::Group{train(), 2}, Program::Group{{"train", other, "--run-dir", run_dir().string(),
                                                   "--set", "batch.global=64"}}});
  expect_refused(program.wait(),
                 {"seed is 3, but 1 on rank 0", "batch.global is 64, but 32 on rank 0"});
}

TEST_F(Agreement, RefusesSamplesOfADifferentSize) {
  for (const std::string columns : {"1,2,", "1,2,3,"}) {
    std::string rows;
    for (int i = 0; i < 64; ++i) rows += columns + std::to_string(i % 3) + "\n";
    scratch_.write(columns.size() == 4 ? "two/train.csv" : "three/train.csv", rows);
  }
  config_ = scratch_.write("csv.txtpb", R"(
model { zoo { name: "mlp" hidden: 8 } }
data { csv { train_file: "train.csv" classes: 3 } holdout: 0.25 }
batch { global: 8 }
train { epochs: 1 }
schedule { learning_rate: 0.01 }
)");
  const auto from = [&](const char* folder) -> std::vector<std::string> {
    return {"--set", "data.root=" + (scratch_ / folder).string()};
  };
  expect_refused(
      start(from("two"), from("three")),
      {"input of training samples is f32 [3] row-major, but f32 [2] row-major on rank 0"}, 3);
}

TEST_F(Agreement, RefusesADifferentProgram) {
  expect_refused(start({}, {}, /*faulty=*/true), {"the program's build id is "});
}

// Rank 1 skips the sum of the first bucket of step 6, so that its second one meets the first one of
// the others.
TEST_F(Agreement, ReportsASkippedAllReduce) {
  for (int ranks : {2, 3}) {
    std::filesystem::remove_all(run_dir());
    const Outcome outcome = broken("call skip rank=1 step=5 index=0", ranks);
    expect_same_diagnosis(outcome, kBound,
                          {"mismatched collectives: rank 1 (", "all-reduce #", "bucket 1 (fc",
                           "but rank 0", "bucket 0 (fc", "in step 6"},
                          {0, 1});
  }
}

}  // namespace
}  // namespace trireme::testing
