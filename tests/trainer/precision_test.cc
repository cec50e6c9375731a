// Runs in low precision, with FP32 master weights, have the same guarantees.
#include <gtest/gtest.h>

#include "runs.h"
#include "trainer/checkpoint/checkpoint_state.h"
#include "trainer/infer/evaluate_checkpoint.h"

namespace trireme::train {
namespace {

struct LowPrecision {
  std::string precision;
  double roundoff;
};

class PrecisionTest : public RunTest {
 protected:
  // Returns the low precisions that the device supports.
  std::vector<LowPrecision> low_precisions() const {
    std::vector<LowPrecision> all;
    if (GetParam() == "cuda" || ops::cpu_computes_in(DType::kBF16))
      all.push_back({"BF16", 1.0 / 256});
    if (GetParam() == "cuda") all.push_back({"FP16", 1.0 / 2048});
    return all;
  }

  static std::vector<std::string> in(const std::string& precision,
                                     std::vector<std::string> assignments = {}) {
    assignments.push_back("train.precision=" + precision);
    return assignments;
  }

  // The configuration differs in run_dir and max_steps.
  std::string state_without_config(const fs::path& checkpoint) const {
    CheckpointState state = state_from_json(file(checkpoint / "state.json"), "state.json");
    state.config.clear();
    return to_json(state);
  }
};

TEST_P(PrecisionTest, SeveralRanksMatchOneRankAndAreCloseToFp32) {
  for (const char* network : {kSyncNorm, kPlain}) {
    const std::string name = network == kPlain ? "plain" : "sync";
    run(network, name + "-FP32", {"train.max_steps=26"});
    for (const LowPrecision& t : low_precisions()) {
      SCOPED_TRACE(name + " in " + t.precision);
      const std::string together = name + t.precision;
      run_alone(network, together + "-alone", in(t.precision, {"train.max_steps=26"}));
      run(network, together, in(t.precision, {"train.max_steps=26"}));
      // Sums in another order occasionally round differently, which may flip ReLUs.
      expect_same_losses(together + "-alone", together, 26, 4 * t.roundoff);
      expect_same_losses(name + "-FP32", together, 26, 4 * t.roundoff);
    }
  }
}

TEST_P(PrecisionTest, ResumingIsBitwiseEqualToAnUninterruptedRun) {
  for (const LowPrecision& t : low_precisions()) {
    SCOPED_TRACE(t.precision);
    const std::string uninterrupted = t.precision + "-uninterrupted";
    run(kOwnNorm, uninterrupted, in(t.precision, {"checkpoint.every_steps=7"}));
    // As if killed after step 17: the steps after the save at step 14 are lost.
    run(kOwnNorm, t.precision, in(t.precision, {"checkpoint.every_steps=7", "train.max_steps=17"}));
    if (world_->rank() == 0) fs::remove_all(checkpoint(t.precision, 17));
    run(kOwnNorm, t.precision, in(t.precision, {"checkpoint.every_steps=7"}));
    EXPECT_EQ(trace(uninterrupted).size(), 28u);
    EXPECT_EQ(trace(t.precision), trace(uninterrupted));
    EXPECT_EQ(model(t.precision, 28), model(uninterrupted, 28));
    for (int64_t step : {14, 28}) {
      EXPECT_EQ(state_without_config(checkpoint(t.precision, step)),
                state_without_config(checkpoint(uninterrupted, step)));
    }
  }
}

TEST_P(PrecisionTest, MicroBatchesAddUpToTheBatch) {
  for (const LowPrecision& t : low_precisions()) {
    SCOPED_TRACE(t.precision);
    run(kPlain, t.precision + "-full", in(t.precision));
    run(kPlain, t.precision + "-micro", in(t.precision, {"batch.micro=4"}));
    expect_same_losses(t.precision + "-full", t.precision + "-micro", 28, t.roundoff);
  }
}

// Checkpoints have the master weights, so nothing is lost by running in a low precision in between.
TEST_P(PrecisionTest, CheckpointsMoveBetweenPrecisions) {
  for (const LowPrecision& t : low_precisions()) {
    SCOPED_TRACE(t.precision);
    const std::string name = t.precision + "-moved";
    const std::string zero_rate = "schedule.learning_rate=0";
    run(kPlain, name, {"train.max_steps=10"});
    run(kPlain, name, in(t.precision, {"train.max_steps=12", zero_rate}));
    EXPECT_EQ(model(name, 12), model(name, 10));
    run(kPlain, name, {"train.max_steps=14", zero_rate});
    EXPECT_EQ(model(name, 14), model(name, 10));
    // The network computed with the same model, rounded.
    const std::vector<double> found = losses(name);
    ASSERT_EQ(found.size(), 14u);
    run(kPlain, t.precision + "-FP32", {"train.max_steps=10"});
    run(kPlain, t.precision + "-FP32", {"train.max_steps=12", zero_rate});
    const std::vector<double> wanted = losses(t.precision + "-FP32");
    for (size_t step : {10, 11}) {
      EXPECT_NE(found[step], wanted[step]);
      EXPECT_NEAR(found[step], wanted[step], 2 * t.roundoff * wanted[step]);
    }
  }
}

TEST_P(PrecisionTest, EvaluatesACheckpoint) {
  for (const LowPrecision& t : low_precisions()) {
    SCOPED_TRACE(t.precision);
    const auto settings = in(t.precision, {"train.max_steps=6"});
    run(kOwnNorm, t.precision, settings);
    const auto last = events(t.precision, "eval").back();
    const Evaluation result =
        evaluate_checkpoint(config(kOwnNorm, t.precision, settings), *world_, newest(t.precision))
            .evaluation;
    EXPECT_NEAR(*result.metrics.loss, last["eval_loss"].get<double>(), 1e-6);
    EXPECT_EQ(result.metrics.accuracy, last["eval_accuracy"].get<double>());
  }
}

TEST_P(PrecisionTest, Tf32IsCloseToFp32) {
  run(kPlain, "FP32", {"train.max_steps=20"});
  run(kPlain, "TF32", in("TF32", {"train.max_steps=20"}));
  expect_same_losses("FP32", "TF32", 20, 1e-3);
  if (GetParam() == "cpu") {
    EXPECT_EQ(trace("TF32"), trace("FP32"));
  }
}

TEST_P(PrecisionTest, RecordsTheLossScale) {
  if (GetParam() == "cpu") GTEST_SKIP() << "FP16 needs a GPU";
  run(kPlain, "scaled", in("FP16", {"train.max_steps=5"}));
  for (const auto& step : events("scaled", "step")) {
    EXPECT_EQ(step["loss_scale"], 65536);
    EXPECT_EQ(step["skipped_steps"], 0);
  }
  run(kPlain, "plain", in("BF16", {"train.max_steps=1"}));
  EXPECT_FALSE(events("plain", "step").at(0).contains("loss_scale"));
}

TRIREME_ON_ALL_DEVICES(PrecisionTest);

}  // namespace
}  // namespace trireme::train
