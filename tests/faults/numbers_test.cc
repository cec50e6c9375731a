// Wrong numbers on one rank: values that are not finite, and parameters that differ from those of
// the other ranks.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kBound = 15;  // seconds; kEndlessRun would take minutes

class Numbers : public FaultTest {
 protected:
  // Saves a checkpoint every ten steps.
  std::vector<std::string> train(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--set", "checkpoint.every_steps=10"});
    return FaultTest::train(more);
  }
  Outcome broken(const std::string& faults, int ranks, const std::vector<std::string>& more = {}) {
    return run(train(more), ranks, {"TRIREME_INJECT=" + faults});
  }

  std::vector<nlohmann::json> events(const std::string& kind) const {
    std::vector<nlohmann::json> found;
    std::istringstream text(read_file(run_dir() / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      auto event = nlohmann::json::parse(line);
      if (event["event"] == kind) found.push_back(std::move(event));
    }
    return found;
  }

  std::string log(int rank) const {
    return read_file(run_dir() / "log" / ("rank-" + std::to_string(rank) + ".log"));
  }

  fs::path checkpoint(const std::string& step) const {
    return run_dir() / "checkpoints" / ("step-000000" + step);
  }

  // Trains ten steps without a fault, to resume from.
  void begin(int ranks) {
    const Outcome outcome = run(train({"--set", "train.max_steps=10"}), ranks);
    ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.error;
    ASSERT_TRUE(fs::exists(checkpoint("10")));
  }

  // Expects one error message, printed by rank 0, and no checkpoint of step `never`.
  void expect_end(const Outcome& outcome, const std::string& fragment, const std::string& never) {
    EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.error;
    EXPECT_LT(outcome.seconds, kBound);
    EXPECT_EQ(lines_with(outcome.error, fragment).size(), 1u) << outcome.error;
    EXPECT_FALSE(fs::exists(checkpoint(never)));
    expect_none_left();
  }

  // Flips a bit of the parameters of a rank in step 17 of 30.
  Outcome flipped(const std::string& rank, int ranks, int check_every) {
    return broken("parameters flip " + rank + " step=17", ranks,
                  {"--set", "train.max_steps=30", "--set",
                   "checks.parameter_checksum_every_steps=" + std::to_string(check_every)});
  }

  // If the run is sharded, expects that the ranks have the same parameters again after step 17,
  // since the owner of a parameter replaces the copies of the other ranks.
  void expect_flip_found(const Outcome& outcome, const std::string& fragment) {
    if (!is_sharded()) return expect_end(outcome, fragment, "20");
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.error;
    EXPECT_TRUE(fs::exists(checkpoint("30")));
  }
};

const std::vector<std::string> kSkipping = {"--set", "checks.non_finite=SKIP",
                                            "--set", "checks.parameter_checksum_every_steps=1",
                                            "--set", "train.max_steps=40"};

TEST_F(Numbers, NanOnOneRankIsSkippedByAll) {
  std::vector<std::vector<std::string>> losses;
  // The run must not depend on the rank at which the NaN appears. The ranks' parameters are
  // compared in each step.
  for (const std::string rank : {"1", "2"}) {
    fs::remove_all(run_dir());
    const Outcome outcome =
        broken("gradients nan rank=" + rank + " step=20 index=16 times=2", 3, kSkipping);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.error;
    const auto found = events("not_finite");
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0]["step"], 21);
    EXPECT_EQ(found[0]["what"],
              "step 21: rank " + rank + ": gradient of 'fc3.weight' is not finite (nan)");
    for (int other : {0, 1, 2}) {
      EXPECT_EQ(lines_with(log(other), found[0]["what"]).size(), 1u) << log(other);
    }
    const auto steps = events("step");
    ASSERT_EQ(steps.size(), 40u);
    EXPECT_EQ(steps[19]["skipped_steps"], 0);
    EXPECT_EQ(steps[20]["skipped_steps"], 1);
    EXPECT_EQ(steps[39]["skipped_steps"], 1);
    EXPECT_EQ(steps[20]["parameter_checksum"], steps[19]["parameter_checksum"]);
    EXPECT_NE(steps[21]["parameter_checksum"], steps[20]["parameter_checksum"]);
    losses.push_back(losses_of(run_dir()));
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_F(Numbers, NanOnOneRankEndsTheRun) {
  begin(2);
  const Outcome outcome = broken("gradients nan rank=1 step=14 index=16 times=2", 2);
  expect_end(outcome, "step 15: rank 1: gradient of 'fc3.weight' is not finite (nan)", "20");
  const Outcome next = run(train({"--set", "train.max_steps=20"}), 2);
  EXPECT_EQ(next.code, 0) << next.out << next.error;
  EXPECT_NE(next.out.find("(step 10,"), std::string::npos) << next.out;
}

TEST_F(Numbers, RepeatedNanEndsTheRunAfterMaxSkipped) {
  const Outcome outcome =
      broken("gradients nan rank=1 index=16 times=0", 2, {"--set", "checks.non_finite=SKIP"});
  expect_end(outcome, "10 steps in a row were skipped, the limit of checks.max_skipped", "10");
  EXPECT_EQ(events("not_finite").size(), 10u);
}

// The NaN does not appear when the step is computed again; the message must say so.
TEST_F(Numbers, ReportsANanThatCannotBeReproduced) {
  const Outcome outcome = broken("gradients nan rank=1 step=24 index=16", 2);
  expect_end(outcome, "but recomputing the step gave finite values on all ranks", "30");
}

TEST_F(Numbers, ReportsANanInTheSamples) {
  std::string rows;
  for (int i = 0; i < 64; ++i) {
    rows += std::to_string(i) + ".5," + std::to_string(i % 5) + "," + std::to_string(i % 3) + "\n";
  }
  scratch_.write("train.csv", rows);
  config_ = scratch_.write("csv.txtpb", R"(
model { zoo { name: "mlp" hidden: 8 } }
data { csv { train_file: "train.csv" classes: 3 } holdout: 0.25 }
batch { global: 8 }
train { epochs: 100 }
schedule { learning_rate: 0.01 }
)");
  const Outcome outcome =
      broken("inputs nan rank=1 step=3", 2, {"--set", "data.root=" + scratch_.path().string()});
  expect_end(outcome, "step 4: rank 1: a sample is not finite (nan)", "06");
}

TEST_F(Numbers, FlippedBitIsFoundAtTheNextCheck) {
  expect_flip_found(flipped("rank=1", 3, 6), "after step 18 rank 1 differs from the others in '");
}

TEST_F(Numbers, FlippedBitIsNeverSaved) {
  begin(3);
  expect_flip_found(flipped("rank=0", 3, 1000000),
                    "after step 20 rank 0 differs from the others in '");
  EXPECT_TRUE(fs::exists(checkpoint("10")));
}

TEST_F(Numbers, NamesBothRanksIfOnlyTwoDiffer) {
  expect_flip_found(flipped("rank=1", 2, 1000000),
                    "after step 20 ranks 0, 1 differ, without a majority that agrees, in '");
}

}  // namespace
}  // namespace trireme::testing
