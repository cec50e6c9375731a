// Training control in complete runs: early stopping, class weights, balanced sampling.
#include <algorithm>
#include <bit>

#include "runs.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/infer/evaluate_checkpoint.h"

namespace trireme::train {
namespace {

const std::string kLossField = "model.network.layer[6].softmax_cross_entropy";
const std::string kWeights = "class_weights: [0.5, 1, 2, 0, 4, 1, 1, 0.25, 3, 1.5]";
const std::string kDoubledWeights = "class_weights: [1, 2, 4, 0, 8, 2, 2, 0.5, 6, 3]";

// Overfits, since the samples (kNoise) are almost independent of their classes: what is learned
// from 60 samples does not generalize.
const char* const kOverfits = R"(
model { network {
  layer { dense { units: 48 } }
  layer { relu {} }
  layer { dense { units: 4 } }
  layer { softmax_cross_entropy {} }
} }
optimizer { adam {} }
schedule { learning_rate: 0.01 }
)";
const std::vector<std::string> kNoise = {"data.synthetic.shape=24",
                                         "data.synthetic.classes=4",
                                         "data.synthetic.count=60",
                                         "data.synthetic.eval_count=200",
                                         "data.synthetic.noise=0.97",
                                         "batch.global=13",
                                         "train.epochs=40",
                                         "checkpoint.keep_best=true",
                                         "train.early_stopping={patience: 3}"};

// 40, 12 and 5 samples of three classes.
std::string unbalanced_table() {
  std::string text;
  for (int i = 0; i < 57; ++i) {
    const int label = i < 40 ? 0 : i < 52 ? 1 : 2;
    for (int f = 0; f < 6; ++f) {
      text += std::to_string((i * 31 + f * 17) % 23 + (f == label ? 12 : 0)) + ",";
    }
    text += std::to_string(label) + "\n";
  }
  return text;
}
const char* const kTableNetwork = R"(
model { network {
  layer { dense { units: 16 } }
  layer { tanh {} }
  layer { dense { units: 3 } }
  layer { softmax_cross_entropy {} }
} }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.02 }
)";

class ControlTest : public RunTest {
 protected:
  static std::vector<std::string> with(std::vector<std::string> all,
                                       const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string weights(const std::string& fields) { return kLossField + "={" + fields + "}"; }

  std::vector<std::string> table(const std::vector<std::string>& more) const {
    if (world_->rank() == 0) spill(root_ / "table.csv", unbalanced_table());
    wait_for_all();
    return with({"data={root: '" + root_.string() +
                     "' csv {train_file: 'table.csv' eval_file: 'table.csv' scale: 0.05}}",
                 "batch.global=10"},
                more);
  }

  nlohmann::json json_of(const fs::path& path) const { return nlohmann::json::parse(file(path)); }
  int64_t newest_step(const std::string& name) const {
    int64_t step = 0;
    if (world_->rank() == 0) {
      step = newest_checkpoint(folder(name) / "checkpoints", [](const std::string&) {})->state.step;
    }
    return std::stoll(broadcast(*world_, std::to_string(step), 0));
  }
};

TEST_P(ControlTest, ClassWeightsDoNotDependOnTheNumberOfRanks) {
  const std::vector<std::vector<std::string>> ways = {
      {weights(kWeights)},
      {weights("label_smoothing: 0.1 " + kWeights), "batch.micro=4"},
      {weights(kWeights), "data.mix={mixup_alpha: 0.4 probability: 0.75}"}};
  for (size_t i = 0; i < ways.size(); ++i) {
    const std::string name = std::to_string(i);
    const std::vector<std::string> assignments = with(ways[i], {"train.max_steps=26"});
    run_alone(kPlain, name + "-alone", assignments);
    run(kPlain, name, assignments);
    expect_same_losses(name + "-alone", name, 26);
    EXPECT_NEAR(events(name, "eval").back()["eval_loss"].get<double>(),
                events(name + "-alone", "eval").back()["eval_loss"].get<double>(), 1e-4);
  }
  EXPECT_NE(losses("0"), losses("2"));
}

// The mean is divided by the sum of the weights, so doubling all weights has no effect.
TEST_P(ControlTest, OnlyTheRatioOfClassWeightsMatters) {
  run(kPlain, "once", {weights(kWeights), "train.max_steps=12"});
  run(kPlain, "twice", {weights(kDoubledWeights), "train.max_steps=12"});
  run(kPlain, "none", {"train.max_steps=12"});
  EXPECT_EQ(trace("once"), trace("twice"));
  EXPECT_NE(trace("once"), trace("none"));
  EXPECT_EQ(events("once", "eval").back()["eval_loss"],
            events("twice", "eval").back()["eval_loss"]);
}

// There are 190 samples, 19 of each class.
TEST_P(ControlTest, BalancedClassWeightsAreSavedAsNumbers) {
  const std::vector<std::string> balanced = {kLossField + ".balanced_class_weights=true",
                                             "checkpoint.every_steps=7"};
  run(kPlain, "plain", {"checkpoint.every_steps=7"});
  run(kPlain, "balanced", with(balanced, {"train.max_steps=17"}));
  if (world_->rank() == 0) fs::remove_all(checkpoint("balanced", 17));
  run(kPlain, "balanced", balanced);
  EXPECT_EQ(trace("balanced"), trace("plain"));
  const Config saved = parse_config(file(folder("balanced") / "config.txtpb"), "saved", {});
  const auto& loss = saved.run.model().network().layer(6).softmax_cross_entropy();
  EXPECT_FALSE(loss.balanced_class_weights());
  EXPECT_EQ(loss.class_weights_size(), 10);
  EXPECT_TRUE(std::ranges::all_of(loss.class_weights(), [](float w) { return w == 1; }));
  // The weights of the same samples are equal, so no change is reported on resume.
  EXPECT_EQ(file(folder("balanced") / "log" / "rank-0.log").find("class_weights:"),
            std::string::npos);
  // Weights of the table: 57 / (3 * 40), 57 / (3 * 12), 57 / (3 * 5).
  run(kTableNetwork, "table",
      table({"model.network.layer[3].softmax_cross_entropy.balanced_class_weights=true",
             "train.max_steps=2"}));
  const Config other = parse_config(file(folder("table") / "config.txtpb"), "saved", {});
  const auto& numbers = other.run.model().network().layer(3).softmax_cross_entropy();
  ASSERT_EQ(numbers.class_weights_size(), 3);
  EXPECT_FLOAT_EQ(numbers.class_weights(0), 0.475F);
  EXPECT_FLOAT_EQ(numbers.class_weights(1), 57 / 36.0F);
  EXPECT_FLOAT_EQ(numbers.class_weights(2), 3.8F);
  // Evaluating the checkpoint weights the objective in the same way.
  const auto last = events("table", "eval").back();
  const Evaluation result = evaluate_checkpoint(other, *world_, newest("table")).evaluation;
  EXPECT_NEAR(*result.metrics.loss, last["eval_loss"].get<double>(), 1e-6);
  EXPECT_NEAR(*result.metrics.objective, last["eval_objective"].get<double>(), 1e-6);
  EXPECT_NE(*result.metrics.objective, *result.metrics.loss);
}

// The loss of evaluations was smoothed and weighted, so runs could not be compared by it.
TEST_P(ControlTest, EvaluationMetricsDoNotDependOnTheOptionsOfTheLoss) {
  run(kPlain, "run",
      {weights("label_smoothing: 0.2 " + kWeights), "train.max_steps=12",
       "data.mix={mixup_alpha: 0.4 probability: 0.75}"});
  const auto trained = events("run", "eval").back();
  const auto evaluate = [&](const std::vector<std::string>& assignments) {
    return evaluate_checkpoint(config(kPlain, "run", assignments), *world_, newest("run"))
        .evaluation.metrics;
  };
  const EvaluationMetrics plain = evaluate({});
  const auto expect_same = [&](const EvaluationMetrics& metrics) {
    EXPECT_NEAR(*metrics.loss, *plain.loss, 1e-6);
    EXPECT_EQ(metrics.accuracy, plain.accuracy);
    EXPECT_EQ(metrics.macro_f1, plain.macro_f1);
  };
  EXPECT_NEAR(trained["eval_loss"].get<double>(), *plain.loss, 1e-6);
  EXPECT_EQ(trained["eval_accuracy"], *plain.accuracy);
  EXPECT_EQ(plain.objective, std::nullopt);
  const EvaluationMetrics smoothed = evaluate({weights("label_smoothing: 0.2")});
  const EvaluationMetrics weighted = evaluate({weights(kWeights)});
  expect_same(smoothed);
  expect_same(weighted);
  EXPECT_GT(std::abs(*smoothed.objective - *plain.loss), 0.01);
  EXPECT_GT(std::abs(*weighted.objective - *plain.loss), 0.01);
  EXPECT_GT(std::abs(trained["eval_objective"].get<double>() - *plain.loss), 0.01);
  // One-hot probabilities, with which the objective divides by the number of samples.
  expect_same(evaluate({weights(kWeights), "data.mix={mixup_alpha: 1}"}));
}

// A run that had converged printed a line for every other step.
TEST_P(ControlTest, ManyLossSpikesAreFewWarnings) {
  run(kPlain, "spikes",
      {"schedule.learning_rate=0", "checks.loss_spike_stds=0.01",
       "checks.parameter_checksum_every_steps=0", "train.epochs=60", "train.eval_every_epochs=0"});
  const auto spikes = static_cast<int64_t>(events("spikes", "loss_spike").size());
  EXPECT_GT(spikes, 32);
  const std::string log = file(folder("spikes") / "log" / "rank-0.log");
  int64_t lines = 0;
  for (size_t at = 0; (at = log.find("standard deviations above", at)) != std::string::npos; ++at) {
    ++lines;
  }
  EXPECT_EQ(lines, 5 + std::bit_width(static_cast<uint64_t>(spikes)) - 3);  // and 8, 16, ...
  EXPECT_NE(log.find("; so far 32 steps"), std::string::npos);
}

TEST_P(ControlTest, ABatchOfWeightZeroHasZeroGradients) {
  // Batches of one sample for each rank, most of a class with weight 0.
  const std::vector<std::string> sparse =
      table({"model.network.layer[3].softmax_cross_entropy={class_weights: [0, 0, 1]}",
             "batch.global=" + std::to_string(world_->size()), "train.max_steps=12"});
  run(kTableNetwork, "sparse", sparse);
  EXPECT_EQ(losses("sparse").size(), 12u);
  EXPECT_EQ(events("sparse", "not_finite").size(), 0u);
  EXPECT_TRUE(
      std::ranges::all_of(losses("sparse"), [](double loss) { return std::isfinite(loss); }));
}

TEST_P(ControlTest, RejectsBadClassWeightsOnAllRanks) {
  const auto attempt = [&](const std::string& fields) {
    return [this, fields] { run(kPlain, "bad", {weights(fields)}); };
  };
  const std::string place = "softmax_cross_entropy.class_weights: ";
  expect_agreed_error(attempt("class_weights: [1, 2]"), ExitCode::kBadConfig,
                      place + "has 2 numbers, but there are 10 classes");
  expect_agreed_error(attempt("class_weights: [1, 1, 1, 1, -0.5, 1, 1, 1, 1, 1]"),
                      ExitCode::kBadConfig,
                      place + "the weight -0.5 of class 4 is negative or not finite");
  expect_agreed_error(attempt("class_weights: [1, 1, nan, 1, 1, 1, 1, 1, 1, 1]"),
                      ExitCode::kBadConfig,
                      place + "the weight nan of class 2 is negative or not finite");
  expect_agreed_error(attempt("class_weights: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"),
                      ExitCode::kBadConfig, place + "all are 0");
  expect_agreed_error(attempt("class_weights: [0, 0, 0, 0, 0, 0, 0, 0, 1e-13, 1e-14]"),
                      ExitCode::kBadConfig, place + "the largest is 1e-13");
  expect_agreed_error(
      [&] {
        run(kPlain, "bad",
            {kLossField + ".balanced_class_weights=true", "data.synthetic.count=7",
             "batch.global=7"});
      },
      ExitCode::kBadConfig, "balanced_class_weights: class 7 has no training samples");
  try {
    config(kPlain, "bad", {weights("balanced_class_weights: true " + kWeights)});
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    const std::string message = kLossField + ".balanced_class_weights: computes class_weights";
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
  EXPECT_FALSE(fs::exists(folder("bad")));
}

TEST_P(ControlTest, BalancedSamplingDoesNotDependOnTheNumberOfRanks) {
  const std::vector<std::string> balanced =
      table({"data.sampling=BALANCED", "data.threads=2", "train.max_steps=40"});
  run_alone(kTableNetwork, "alone", balanced);
  run(kTableNetwork, "together", balanced);
  expect_same_losses("alone", "together", 40);
  run(kTableNetwork, "plain", table({"train.max_steps=40"}));
  EXPECT_NE(losses("plain"), losses("together"));
  // An epoch has as many samples as without balancing; its last batch is smaller.
  EXPECT_EQ(events("together", "start").back()["steps_per_epoch"], 6);
  EXPECT_EQ(events("together", "step")[6]["epoch"], 1);
  // Evaluation has each sample once.
  EXPECT_EQ(events("together", "eval").back()["samples"], 57);
}

TEST_P(ControlTest, ResumingWithBalancedSamplingIsBitwiseEqual) {
  const std::vector<std::string> balanced =
      table({"data.sampling=BALANCED", "checkpoint.every_steps=7", "train.epochs=5",
             "model.network.layer[3].softmax_cross_entropy={balanced_class_weights: true}"});
  run(kTableNetwork, "straight", balanced);
  run(kTableNetwork, "resumed", with(balanced, {"train.max_steps=17"}));
  if (world_->rank() == 0) fs::remove_all(checkpoint("resumed", 17));
  run(kTableNetwork, "resumed", balanced);
  EXPECT_EQ(events("resumed", "start").back()["step"], 14);
  EXPECT_EQ(trace("straight").size(), 30u);
  EXPECT_EQ(trace("resumed"), trace("straight"));
  EXPECT_EQ(model("resumed", 30), model("straight", 30));
}

TEST_P(ControlTest, RejectsBadSamplingOnAllRanks) {
  expect_agreed_error(
      [&] {
        run(kPlain, "bad", {"data.sampling=BALANCED", "data.shuffle=false"});
      },
      ExitCode::kBadConfig, "data.sampling: BALANCED draws from all samples at random");
  expect_agreed_error(
      [&] {
        run(kTableNetwork, "bad", table({"data.sampling=BALANCED", "data.csv.regression=true"}));
      },
      ExitCode::kBadConfig, "data.sampling: needs samples with class labels");
  EXPECT_FALSE(fs::exists(folder("bad")));
}

TEST_P(ControlTest, EarlyStoppingReportsTheBestEvaluation) {
  const TrainResult result = run(kOverfits, "early", kNoise);
  EXPECT_EQ(result.code, ExitCode::kDone);
  EXPECT_EQ(result.summary.status, "done");
  EXPECT_EQ(result.summary.ended_by, "early_stopping");
  EXPECT_NE(result.summary.reason.find("loss has not been below "), std::string::npos);
  const auto evals = events("early", "eval");
  ASSERT_LT(evals.size(), 40u);
  const auto best = std::ranges::min_element(
      evals, {}, [](const nlohmann::json& each) { return each["eval_loss"].get<double>(); });
  EXPECT_EQ(evals.end() - best, 4);  // three more without improvement
  EXPECT_GT(evals.back()["eval_loss"].get<double>(), (*best)["eval_loss"].get<double>());

  // All results reported at the end are those of the best evaluation.
  const int64_t best_step = (*best)["step"];
  const nlohmann::json summary = json_of(folder("early") / "summary.json");
  EXPECT_EQ(summary["ended_by"], "early_stopping");
  EXPECT_EQ(summary["best_metric"], "loss");
  EXPECT_EQ(summary["best_step"], best_step);
  EXPECT_EQ(summary["best_eval_loss"], (*best)["eval_loss"]);
  EXPECT_EQ(summary["best_accuracy"], (*best)["eval_accuracy"]);
  EXPECT_EQ(summary["eval_step"], evals.back()["step"]);
  EXPECT_EQ(summary["eval_loss"], evals.back()["eval_loss"]);
  EXPECT_EQ(summary["steps"], evals.back()["step"]);
  EXPECT_EQ(summary["reason"], events("early", "end").back()["reason"]);
  const nlohmann::json details = json_of(folder("early") / "evaluation.json");
  EXPECT_EQ(details["step"], best_step);
  EXPECT_EQ(details["epoch"], (*best)["epoch"]);
  EXPECT_EQ(details["loss"], (*best)["eval_loss"]);
  EXPECT_TRUE(details.contains("confusion"));

  // The newest checkpoint is that of the last step; evaluations of the run use the best one.
  EXPECT_EQ(newest_step("early"), evals.back()["step"].get<int64_t>());
  const auto tested =
      evaluate_checkpoint(config(kOverfits, "early", kNoise), *world_, newest("early"));
  EXPECT_EQ(tested.state.step, best_step);
  EXPECT_NEAR(*tested.evaluation.metrics.loss, (*best)["eval_loss"].get<double>(), 1e-6);

  // Resuming does nothing, unless with more patience.
  const std::string text = file(folder("early") / "summary.json");
  run(kOverfits, "early", kNoise);
  EXPECT_EQ(file(folder("early") / "summary.json"), text);
  EXPECT_EQ(events("early", "start").size(), 1u);
  const TrainResult more =
      run(kOverfits, "early", with(kNoise, {"train.early_stopping.patience=5"}));
  EXPECT_EQ(more.summary.ended_by, "early_stopping");
  EXPECT_GT(more.summary.steps, result.summary.steps);
  EXPECT_EQ(events("early", "start").back()["step"], result.summary.steps);
}

// The checkpoint has averages, although the run no longer computes them.
TEST_P(ControlTest, TheBestEvaluationIsThatOfTheAveragesOfItsCheckpoint) {
  const std::vector<std::string> averaged = with(kNoise, {"optimizer.ema={decay: 0.9}"});
  const TrainResult first = run(kOverfits, "ema", averaged);
  ASSERT_EQ(first.summary.ended_by, "early_stopping");
  const TrainResult more =
      run(kOverfits, "ema",
          with(averaged, {"train.early_stopping.patience=4", "optimizer.ema.decay=0"}));
  ASSERT_GT(more.summary.steps, first.summary.steps);
  const nlohmann::json summary = json_of(folder("ema") / "summary.json");
  const nlohmann::json result = json_of(folder("ema") / "evaluation.json");
  ASSERT_LT(summary["best_step"], first.summary.steps);
  EXPECT_EQ(result["step"], summary["best_step"]);
  EXPECT_NEAR(result["loss"].get<double>(), summary["best_eval_loss"].get<double>(), 1e-6);
}

TEST_P(ControlTest, EarlyStoppingDoesNotDependOnTheNumberOfRanks) {
  run_alone(kOverfits, "alone", kNoise);
  const TrainResult together = run(kOverfits, "together", kNoise);
  EXPECT_EQ(json_of(folder("alone") / "summary.json")["steps"], together.summary.steps);
  EXPECT_EQ(json_of(folder("alone") / "summary.json")["best_step"],
            json_of(folder("together") / "summary.json")["best_step"]);
}

// A run that is killed and resumed ends at the same step as an uninterrupted run.
TEST_P(ControlTest, EarlyStoppingSurvivesAResume) {
  const std::vector<std::string> assignments =
      with(kNoise,
           {"train.eval_every_epochs=0", "train.eval_every_steps=4", "checkpoint.every_steps=3"});
  const TrainResult straight = run(kOverfits, "straight", assignments);
  ASSERT_EQ(straight.summary.ended_by, "early_stopping");
  const int64_t last = straight.summary.steps;
  ASSERT_GT(last, 14);
  for (const int64_t at : {last - 11, last - 6, last - 3, last - 1}) {
    const std::string name = "killed-" + std::to_string(at);
    run(kOverfits, name, with(assignments, {"train.max_steps=" + std::to_string(at)}));
    if (world_->rank() == 0) fs::remove_all(checkpoint(name, at));
    const TrainResult resumed = run(kOverfits, name, assignments);
    EXPECT_EQ(resumed.summary.steps, last) << at;
    for (const char* field : {"best_step", "best_eval_loss", "eval_step", "eval_loss"}) {
      EXPECT_EQ(json_of(folder(name) / "summary.json")[field],
                json_of(folder("straight") / "summary.json")[field])
          << field;
    }
    EXPECT_EQ(trace(name), trace("straight"));
    EXPECT_EQ(json_of(checkpoint(name, last) / "state.json")["early_stopping"],
              json_of(checkpoint("straight", last) / "state.json")["early_stopping"]);
  }
}

TEST_P(ControlTest, EarlyStoppingSurvivesAResumeInAnotherFolder) {
  const std::vector<std::string> assignments = with(kNoise, {"checkpoint.every_epochs=1"});
  const TrainResult straight = run(kOverfits, "straight", assignments);
  ASSERT_EQ(straight.summary.ended_by, "early_stopping");
  const int64_t last = straight.summary.steps;
  const auto summary_of = [&](const std::string& name) {
    return json_of(folder(name) / "summary.json");
  };
  const auto best = summary_of("straight")["best_step"].get<int64_t>();
  ASSERT_GT(last, best);  // the best is not among what is trained anew
  const std::string from = checkpoint("straight", best + 5).string();
  const TrainResult resumed = run(kOverfits, "elsewhere", assignments, from);
  EXPECT_EQ(resumed.summary.steps, last);
  EXPECT_EQ(summary_of("elsewhere")["best_step"], best);
  EXPECT_EQ(summary_of("elsewhere")["best_eval_loss"], summary_of("straight")["best_eval_loss"]);
  for (const int64_t step : {best, last}) {
    EXPECT_EQ(model("elsewhere", step), model("straight", step));
  }
  EXPECT_EQ(json_of(checkpoint("elsewhere", last) / "state.json")["early_stopping"],
            json_of(checkpoint("straight", last) / "state.json")["early_stopping"]);
  // The same command goes on with what it has saved, even if the other run is gone.
  if (world_->rank() == 0) fs::remove_all(folder("straight"));
  wait_for_all();
  const TrainResult more =
      run(kOverfits, "elsewhere", with(assignments, {"train.early_stopping.patience=4"}), from);
  EXPECT_GT(more.summary.steps, last);
  EXPECT_EQ(events("elsewhere", "start").back()["step"], last);
}

TEST_P(ControlTest, TheBestCheckpointIsKnownWithoutItsPointer) {
  run(kOverfits, "early", kNoise);
  const nlohmann::json first = json_of(folder("early") / "summary.json");
  const auto best = first["best_step"].get<int64_t>();
  wait_for_all();
  if (world_->rank() == 0) fs::remove(folder("early") / "checkpoints" / "best");
  wait_for_all();
  EXPECT_EQ(newest("early").state.step, best);
  run(kOverfits, "early", with(kNoise, {"train.early_stopping.patience=4"}));
  const nlohmann::json more = json_of(folder("early") / "summary.json");
  EXPECT_EQ(more["best_step"], best);
  EXPECT_EQ(more["best_eval_loss"], first["best_eval_loss"]);
  const std::string pointer = file(folder("early") / "checkpoints" / "best");
  EXPECT_EQ(pointer, checkpoint("early", best).filename().string() + "\n");
}

// The count of early stopping does not need the weights.
TEST_P(ControlTest, AMissingBestCheckpointIsReported) {
  const TrainResult first = run(kOverfits, "lost", kNoise);
  const auto best = json_of(folder("lost") / "summary.json")["best_step"].get<int64_t>();
  wait_for_all();
  if (world_->rank() == 0) fs::remove_all(checkpoint("lost", best));
  wait_for_all();
  const TrainResult more =
      run(kOverfits, "lost", with(kNoise, {"train.early_stopping.patience=4"}));
  EXPECT_EQ(more.summary.steps, first.summary.steps + 5);  // one more epoch of patience
  EXPECT_EQ(more.summary.eval_step, more.summary.steps);
  const std::string log = file(folder("lost") / "log" / "rank-0.log");
  EXPECT_NE(
      log.find("the best checkpoint so far, " + checkpoint("lost", best).string() + " with loss "),
      std::string::npos)
      << log;
}

TEST_P(ControlTest, RunsThatAreNotStoppedEarlyReportTheBestEvaluation) {
  const TrainResult result =
      run(kOverfits, "through",
          with(kNoise,
               {"train.early_stopping={monitor: 'accuracy' patience: 1000}", "train.epochs=9"}));
  EXPECT_EQ(result.summary.ended_by, "epochs");
  EXPECT_EQ(result.summary.epochs, 9);
  const auto evals = events("through", "eval");
  ASSERT_EQ(evals.size(), 9u);
  const auto best = std::ranges::max_element(
      evals, {}, [](const nlohmann::json& each) { return each["eval_accuracy"].get<double>(); });
  const nlohmann::json summary = json_of(folder("through") / "summary.json");
  EXPECT_EQ(summary["best_step"], (*best)["step"]);
  EXPECT_EQ(summary["best_accuracy"], (*best)["eval_accuracy"]);
}

// With no early stopping, the summary had only the last evaluation, and `trireme runs` the best.
TEST_P(ControlTest, TheSummaryHasTheLastAndTheBestEvaluation) {
  std::vector<std::string> assignments = with(kNoise, {"train.epochs=12"});
  std::erase(assignments, "train.early_stopping={patience: 3}");
  const auto expect_both = [&] {
    const auto evals = events("both", "eval");
    const auto best = std::ranges::max_element(
        evals, {}, [](const nlohmann::json& each) { return each["eval_accuracy"].get<double>(); });
    const nlohmann::json summary = json_of(folder("both") / "summary.json");
    EXPECT_EQ(summary["best_metric"], "accuracy");
    EXPECT_EQ(summary["best_step"], (*best)["step"]);
    EXPECT_EQ(summary["best_accuracy"], (*best)["eval_accuracy"]);
    EXPECT_EQ(summary["best_eval_loss"], (*best)["eval_loss"]);
    EXPECT_EQ(summary["eval_step"], evals.back()["step"]);
    EXPECT_EQ(summary["eval_accuracy"], evals.back()["eval_accuracy"]);
  };
  run(kOverfits, "both", assignments);
  expect_both();
  // Evaluations before a resume count.
  run(kOverfits, "both", with(assignments, {"train.epochs=14"}));
  expect_both();
}

TEST_P(ControlTest, EarlyStoppingWithoutAFiniteValueNamesNoBestCheckpoint) {
  const TrainResult result =
      run(kOverfits, "lost",
          with(kNoise, {"train.early_stopping={patience: 2}", "schedule.learning_rate=1e30",
                        "checks.non_finite=SKIP", "checks.max_skipped=100000"}));
  EXPECT_EQ(result.summary.ended_by, "early_stopping");
  const nlohmann::json summary = json_of(folder("lost") / "summary.json");
  EXPECT_TRUE(summary["best_eval_loss"].is_null());
  EXPECT_EQ(file(folder("lost") / "log" / "rank-0.log").find("used by export"), std::string::npos);
  EXPECT_EQ(json_of(folder("lost") / "evaluation.json")["step"], result.summary.steps);
}

TEST_P(ControlTest, IgnoresImprovementsBelowMinDelta) {
  const TrainResult result =
      run(kOverfits, "delta", with(kNoise, {"train.early_stopping={patience: 2 min_delta: 100}"}));
  EXPECT_EQ(result.summary.ended_by, "early_stopping");
  EXPECT_EQ(result.summary.epochs, 3);  // the first evaluation is always the best so far
}

TEST_P(ControlTest, RejectsMetricsThatAreNotMeasuredOnAllRanks) {
  expect_agreed_error(
      [&] {
        std::string regression = kTableNetwork;
        const std::string loss = "softmax_cross_entropy {}";
        regression.replace(regression.find(loss), loss.size(), "mean_squared_error {}");
        run(regression, "bad",
            table({"data.csv.regression=true", "model.network.layer[2].dense.units=1",
                   "checkpoint.keep_best=true", "train.early_stopping={monitor: 'accuracy'}"}));
      },
      ExitCode::kBadConfig,
      "train.early_stopping.monitor: 'accuracy' is not measured: this run predicts numbers");
  expect_agreed_error(
      [&] {
        run(kOverfits, "bad", with(kNoise, {"train.early_stopping={monitor: 'bits_per_byte'}"}));
      },
      ExitCode::kBadConfig, "train.early_stopping.monitor: 'bits_per_byte' is not measured");
  EXPECT_FALSE(fs::exists(folder("bad")));
}

TRIREME_ON_ALL_DEVICES(ControlTest);

}  // namespace
}  // namespace trireme::train
