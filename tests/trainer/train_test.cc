// Whole runs in this process, on every rank.
#include <fmt/format.h>

#include <csignal>
#include <thread>

#include "runs.h"
#include "trainer/infer/evaluate_checkpoint.h"
#include "trainer/run/run_start.h"

namespace trireme::train {
namespace {

class TrainTest : public RunTest {};

TEST_P(TrainTest, RanksTogetherEqualOneRank) {
  for (const char* network : {kSyncNorm, kPlain}) {
    const std::string name = network == kPlain ? "plain" : "sync";
    run_alone(network, name + "-alone", {"train.max_steps=26"});
    run(network, name, {"train.max_steps=26"});
    expect_same_losses(name + "-alone", name, 26);
    const auto alone = events(name + "-alone", "eval").back();
    const auto together = events(name, "eval").back();
    EXPECT_EQ(together["samples"], 55);
    EXPECT_EQ(alone["samples"], 55);
    EXPECT_NEAR(together["eval_loss"].get<double>(), alone["eval_loss"].get<double>(),
                1e-4 * alone["eval_loss"].get<double>());
  }
}

// Pairs that are mixed with each other lie on two ranks here and there.
TEST_P(TrainTest, RanksTogetherEqualOneRankOnMixedSamples) {
  const std::vector<std::string> mixed = {
      "data.mix={mixup_alpha: 0.4 cutmix_alpha: 1 probability: 0.75}",
      "data.transform[0]={random_crop {size: 8 padding: 1}}", "train.epochs=13",
      "train.max_steps=50"};
  run_alone(kSyncNorm, "alone", mixed);
  run(kSyncNorm, "together", mixed);
  expect_same_losses("alone", "together", 50);
  run(kSyncNorm, "plain", {"train.max_steps=5"});
  EXPECT_NE(losses("plain"), losses("together"));
  // Nothing of it happens to what is evaluated.
  const auto evaluated = events("together", "eval").back();
  EXPECT_EQ(evaluated["samples"], 55);
  EXPECT_GT(evaluated["eval_accuracy"], 0.5);
  EXPECT_NEAR(evaluated["eval_loss"].get<double>(),
              events("alone", "eval").back()["eval_loss"].get<double>(), 1e-3);
}

TEST_P(TrainTest, TheSameTwiceIsBitwiseTheSame) {
  for (const char* name : {"first", "second"}) run(kOwnNorm, name);
  EXPECT_EQ(trace("first").size(), 28u);
  EXPECT_EQ(trace("first"), trace("second"));
  EXPECT_EQ(model("first", 28), model("second", 28));
}

TEST_P(TrainTest, MicroBatchesAddUpToTheBatch) {
  run(kPlain, "whole");
  run(kPlain, "micro", {"batch.micro=4"});
  expect_same_losses("whole", "micro", 28);
}

TEST_P(TrainTest, ResumingWithinAnEpochIsBitwiseTheStraightRun) {
  for (const char* network : {kOwnNorm, kSyncNorm}) {
    const std::string name = network == kOwnNorm ? "own" : "sync";
    run(network, name + "-straight", {"checkpoint.every_steps=7"});
    // Stopped as if killed after step 17: what came after the save at step 14 is lost.
    run(network, name, {"checkpoint.every_steps=7", "train.max_steps=17"});
    if (world_->rank() == 0) fs::remove_all(checkpoint(name, 17));
    run(network, name, {"checkpoint.every_steps=7"});
    EXPECT_EQ(trace(name + "-straight").size(), 28u);
    EXPECT_EQ(trace(name), trace(name + "-straight"));
    EXPECT_EQ(model(name, 28), model(name + "-straight", 28));
    EXPECT_EQ(events(name, "start").size(), 2u);
    EXPECT_EQ(events(name, "start").back()["step"], 14);
  }
}

TEST_P(TrainTest, ADamagedCheckpointIsPassedOver) {
  run(kPlain, "straight", {"checkpoint.every_steps=7"});
  run(kPlain, "damaged", {"checkpoint.every_steps=7", "train.max_steps=17"});
  if (world_->rank() == 0) fs::resize_file(checkpoint("damaged", 17) / "model.safetensors", 100);
  run(kPlain, "damaged", {"checkpoint.every_steps=7"});
  EXPECT_EQ(events("damaged", "start").back()["step"], 14);
  EXPECT_EQ(trace("damaged"), trace("straight"));

  if (world_->rank() == 0)
    fs::resize_file(checkpoint("damaged", 14) / "optimizer.safetensors", 100);
  expect_agreed_error([&] { run(kPlain, "other", {}, checkpoint("damaged", 14).string()); },
                      ExitCode::kBadData, "optimizer.safetensors: has 100 bytes");
}

TEST_P(TrainTest, GoingBackToAnOlderCheckpointDiscardsLaterOnes) {
  run(kPlain, "back", {"checkpoint.every_steps=5"});
  const std::vector<std::string> straight = trace("back");
  // Without run_dir the run that the checkpoint is of goes on.
  const Config config =
      parse_config(std::string(kPlain) + kCommon, "test",
                   std::vector<std::string>{"train.max_steps=22", "train.device=" + GetParam()});
  const TrainResult result =
      train(config, *world_, {.resume = checkpoint("back", 20).string(), .quiet = true});
  EXPECT_EQ(fs::path(result.run_dir), fs::weakly_canonical(folder("back")));
  EXPECT_EQ(events("back", "start").back()["step"], 20);
  EXPECT_EQ(losses("back").size(), 22u);
  run(kPlain, "back");
  EXPECT_EQ(events("back", "start").back()["step"], 22);
  EXPECT_EQ(trace("back"), straight);
}

TEST_P(TrainTest, ResumesOnAnotherNumberOfRanks) {
  run_alone(kSyncNorm, "alone");
  // One rank begins, all go on from within the third epoch.
  run_alone(kSyncNorm, "moved", {"train.max_steps=10"});
  run(kSyncNorm, "moved");
  expect_same_losses("alone", "moved", 28);
  EXPECT_EQ(losses("moved").size(), 28u);
}

// 4 steps an epoch, then 10: 20 steps are 5 epochs.
TEST_P(TrainTest, AnotherBatchGoesOnAfterTheSameSamples) {
  const std::vector<std::string> cosine = {"schedule={learning_rate: 0.01 cosine {}}",
                                           "train.epochs=10"};
  const auto with = [&](const std::string& more) {
    std::vector<std::string> all = cosine;
    all.push_back(more);
    return all;
  };
  run(kPlain, "batch", with("train.max_steps=20"));
  const TrainResult result = run(kPlain, "batch", with("batch.global=20"));
  EXPECT_EQ(result.summary.epochs, 10);
  EXPECT_EQ(result.summary.steps, 20 + 5 * 10);
  EXPECT_EQ(events("batch", "start").back()["total_steps"], 70);
  const auto steps = events("batch", "step");
  ASSERT_EQ(steps.size(), 70u);
  EXPECT_NEAR(steps[19]["learning_rate"].get<double>(), 0.01 * (1 + std::cos(M_PI * 19 / 40)) / 2,
              1e-9);
  EXPECT_NEAR(steps[20]["learning_rate"].get<double>(), 0.005, 1e-9);
  EXPECT_NEAR(steps[69]["learning_rate"].get<double>(), 0.01 * (1 + std::cos(M_PI * 99 / 100)) / 2,
              1e-9);
  EXPECT_EQ(events("batch", "eval").size(), 10u);
  // The log tells why: the batch changed. Another number of ranks would not matter here.
  const std::string log = file(folder("batch") / "log" / "rank-0.log");
  EXPECT_NE(log.find("batch.global: 50 -> 20"), std::string::npos) << log;
}

TEST_P(TrainTest, MomentumCanComeLater) {
  const std::vector<std::string> none = {"optimizer={sgd {}}", "train.max_steps=5"};
  run(kPlain, "later", none);
  run(kPlain, "later", {"optimizer={sgd {momentum: 0.9}}", "train.max_steps=10"});
  EXPECT_EQ(losses("later").size(), 10u);
}

TEST_P(TrainTest, RanksAreComparedWhereBatchNormDependsOnThem) {
  for (const char* network : {kOwnNorm, kSyncNorm}) {
    const std::string name = network == kOwnNorm ? "own" : "sync";
    run_alone(network, name, {"train.max_steps=2"});
    run(network, name, {"train.max_steps=3"});
    const bool warned =
        file(folder(name) / "log" / "rank-0.log").find("samples of the statistics of batch norm") !=
        std::string::npos;
    EXPECT_EQ(warned, network == kOwnNorm && world_->size() > 1);
  }
}

TEST_P(TrainTest, ASignalToAnyRankStopsAllAndTheRunGoesOnLater) {
  const std::vector<std::string> endless = {"train.epochs=1000000", "checkpoint.every_steps=3",
                                            "checkpoint.keep=3"};
  const bool signalled = world_->rank() == world_->size() - 1;
  StopSignals stop;
  std::thread stopper;
  if (signalled) {
    stopper = std::thread([&] {
      while (!fs::exists(folder("stopped") / "checkpoints" / "latest")) std::this_thread::yield();
      raise(SIGUSR1);
    });
  }
  const TrainResult result = train(config(kOwnNorm, "stopped", endless), *world_,
                                   {.stop = &stop, .quiet = true, .wait_for_saves = true});
  if (signalled) stopper.join();
  EXPECT_EQ(result.code, ExitCode::kResumable);
  EXPECT_EQ(result.summary.status, "stopped");
  EXPECT_GE(result.summary.steps, 3);
  EXPECT_FALSE(model("stopped", result.summary.steps).empty());
  EXPECT_EQ(events("stopped", "end").back()["status"], "stopped");
  EXPECT_EQ(nlohmann::json::parse(file(folder("stopped") / "summary.json"))["status"], "stopped");

  const int64_t more = result.summary.steps + 2;
  const TrainResult resumed =
      run(kOwnNorm, "stopped", {"train.epochs=1000000", "train.max_steps=" + std::to_string(more)});
  EXPECT_EQ(resumed.code, ExitCode::kDone);
  EXPECT_EQ(resumed.summary.steps, more);
  EXPECT_EQ(losses("stopped").size(), static_cast<size_t>(more));
}

TEST_P(TrainTest, ACompleteRunIsLeftAlone) {
  run(kPlain, "complete", {"train.max_steps=5"});
  const std::string summary = file(folder("complete") / "summary.json");
  const TrainResult again = run(kPlain, "complete", {"train.max_steps=5"});
  EXPECT_EQ(again.code, ExitCode::kDone);
  EXPECT_EQ(again.summary.steps, 5);
  EXPECT_EQ(file(folder("complete") / "summary.json"), summary);
}

TEST_P(TrainTest, EvaluatesASavedModel) {
  run(kOwnNorm, "saved", {"train.max_steps=6"});
  const auto last = events("saved", "eval").back();
  for (const fs::path& path : {folder("saved"), checkpoint("saved", 6)}) {
    const Evaluation result = evaluate_checkpoint(config(kOwnNorm, "saved"), *world_,
                                                  find_for_inference(path, warn_on_stderr))
                                  .evaluation;
    EXPECT_EQ(result.samples, 55);
    EXPECT_NEAR(*result.metrics.loss, last["eval_loss"].get<double>(), 1e-6);
    EXPECT_EQ(result.metrics.accuracy, last["eval_accuracy"].get<double>());
  }
  expect_agreed_error(
      [&] { evaluate_checkpoint(config(kPlain, "saved"), *world_, newest("saved")); },
      ExitCode::kBadConfig, "another model");
}

// Predictions come from the same rows at a time, so that only the sums could differ.
TEST_P(TrainTest, MetricsAreTheSameOnAnyNumberOfRanks) {
  const std::vector<std::string> few = {"batch.micro=4", "train.max_steps=20"};
  run_alone(kPlain, "classes", few);
  const Evaluation result =
      evaluate_checkpoint(config(kPlain, "classes", few), *world_, newest("classes")).evaluation;
  const auto alone = events("classes", "eval").back();
  ASSERT_EQ(result.classes.size(), 10u);
  int64_t support = 0, right = 0;
  for (size_t c = 0; c < 10; ++c) {
    support += result.classes[c].support;
    right += result.classes[c].true_positives;
    EXPECT_EQ(alone["per_class"]["support"][c], result.classes[c].support);
    EXPECT_EQ(alone["per_class"]["f1"][c], result.classes[c].f1());
  }
  EXPECT_EQ(support, 55);
  EXPECT_EQ(static_cast<double>(right) / 55, result.metrics.accuracy);
  EXPECT_EQ(alone["eval_macro_f1"], *result.metrics.macro_f1);
  EXPECT_EQ(alone["eval_macro_recall"], *result.metrics.macro_recall);
  EXPECT_FALSE(alone.contains("eval_mae"));

  if (world_->rank() == 0) {
    std::string table;
    for (int i = 0; i < 61; ++i) {
      table += fmt::format("{},{},{}\n", i % 7, i % 5, 1000 + 2 * (i % 7) - i % 5);
    }
    spill(root_ / "table.csv", table);
  }
  std::vector<std::string> table = few;
  table.push_back("data={root: '" + root_.string() +
                  "' csv {train_file: 'table.csv' eval_file: 'table.csv' regression: true}}");
  constexpr const char* kLine =
      "model { network { layer { dense { units: 1 } } layer { mean_squared_error {} } } }\n"
      "optimizer { adam {} }\nschedule { learning_rate: 0.5 }\n";
  run_alone(kLine, "numbers", table);
  const EvaluationMetrics numbers =
      evaluate_checkpoint(config(kLine, "numbers", table), *world_, newest("numbers"))
          .evaluation.metrics;
  const auto wanted = events("numbers", "eval").back();
  for (const MetricInfo& metric : kEvaluationMetrics) {
    const std::string key = std::string("eval_") + metric.name;
    ASSERT_EQ(wanted.contains(key), (numbers.*metric.value).has_value()) << key;
    if (!wanted.contains(key)) continue;
    const double value = wanted[key];
    // The loss is summed in single precision.
    const double tolerance = metric.value == &EvaluationMetrics::loss ? 1e-6 : 1e-12;
    EXPECT_NEAR(*(numbers.*metric.value), value, tolerance * std::abs(value)) << key;
  }
  EXPECT_TRUE(numbers.r2 && numbers.mae && numbers.rmse);
  EXPECT_NEAR(*numbers.rmse * *numbers.rmse, *numbers.loss, 1e-5 * *numbers.loss);
}

TEST_P(TrainTest, TheRunFolderHoldsWhatItPromises) {
  const TrainResult result = run(kOwnNorm, "full", {"train.epochs=2", "checkpoint.every_epochs=1"});
  EXPECT_EQ(result.code, ExitCode::kDone);
  EXPECT_EQ(result.summary.epochs, 2);
  EXPECT_EQ(result.summary.steps, 8);
  EXPECT_EQ(result.summary.ranks, world_->size());
  EXPECT_GT(result.summary.peak_memory_bytes, 0);
  ASSERT_TRUE(result.summary.eval.accuracy);
  // The saved configuration is whole and says where the run is.
  const Config saved = parse_config(file(folder("full") / "config.txtpb"), "saved", {});
  EXPECT_EQ(saved.run.run_dir(), folder("full").string());
  EXPECT_EQ(config_hash(saved.run), config_hash(config(kOwnNorm, "full").run));
  for (int rank = 0; rank < world_->size(); ++rank) {
    EXPECT_NE(file(folder("full") / "log" / ("rank-" + std::to_string(rank) + ".log")), "") << rank;
  }
  EXPECT_EQ(events("full", "start").size(), 1u);
  EXPECT_EQ(events("full", "step").size(), 8u);
  EXPECT_EQ(events("full", "eval").size(), 2u);
  EXPECT_EQ(events("full", "checkpoint").size(), 2u);
  EXPECT_EQ(events("full", "end").size(), 1u);
}

TEST_P(TrainTest, AFolderThatCannotBeWrittenIsAnAgreedError) {
  if (world_->rank() == 0) spill(root_ / "file", "");
  expect_agreed_error([&] { run(kPlain, "file/run"); }, ExitCode::kFailure,
                      "run folder " + (root_ / "file/run").string() + " cannot be used");
}

TEST_P(TrainTest, ErrorsAtTheStartAreAgreed) {
  const auto attempt = [&](const std::vector<std::string>& assignments,
                           const std::string& resume = "auto") {
    return [this, assignments, resume] {
      std::vector<std::string> all = assignments;
      run(kPlain, "bad", all, resume);
    };
  };
  expect_agreed_error(attempt({"train.device=cpu", "train.precision=FP16"}), ExitCode::kBadConfig,
                      "--set: train.precision: FP16 is not supported on a CPU; use BF16");
  if (query_cuda().devices == 0) {
    expect_agreed_error(attempt({"train.device=cuda"}), ExitCode::kBadConfig,
                        "train.device: rank 0 (host ");
  }
  expect_agreed_error(attempt({"model.network.layer[4].dense.units=7"}), ExitCode::kBadConfig,
                      "test:2: model");
  expect_agreed_error(attempt({}, "/nowhere/at/all"), ExitCode::kBadData, "/nowhere/at/all");
  if (world_->size() > 1) {
    expect_agreed_error(attempt({"batch.global=1"}), ExitCode::kBadConfig,
                        "batch.global: 1 is less than the");
  }
}

TEST_P(TrainTest, NeverResumingRefusesAFolderWithCheckpoints) {
  run(kPlain, "used", {"train.max_steps=2"});
  expect_agreed_error([&] { run(kPlain, "used", {}, "never"); }, ExitCode::kBadConfig,
                      "already holds checkpoints");
  EXPECT_EQ(losses("used").size(), 2u);
  // The refusal has changed nothing.
  EXPECT_NE(file(folder("used") / "config.txtpb").find("max_steps: 2"), std::string::npos);
  EXPECT_NE(file(folder("used") / "summary.json"), "");
}

// Rank 0 may be on another host than before, with a folder of its own at the same path.
TEST_P(TrainTest, CheckpointsThatOnlyAnotherHostHasAreNotOverlooked) {
  const auto hosts = test::join(test::Hosts::kOneEach);
  const TemporaryFolder own;  // of this host
  const fs::path checkpoints = own.path() / "checkpoints";
  if (hosts->rank() == 1) fs::create_directories(checkpoints / "step-00000300");
  if (hosts->size() == 1) {
    EXPECT_NO_THROW(require_newest_on_rank_0(*hosts, checkpoints));
    return;
  }
  const auto refused = [&] { require_newest_on_rank_0(*hosts, checkpoints); };
  expect_agreed_error(refused, ExitCode::kBadData, "sees no checkpoint: the hosts do not share");
  if (hosts->rank() == 0) fs::create_directories(checkpoints / "step-00000299");
  expect_agreed_error(refused, ExitCode::kBadData, "sees step-00000300 there, but rank 0 (host ");
  if (hosts->rank() == 0) fs::create_directories(checkpoints / "step-00000300");
  EXPECT_NO_THROW(refused());
  if (hosts->rank() == 1) fs::remove_all(checkpoints);  // the usual case: only rank 0 has any
  EXPECT_NO_THROW(refused());
}

TEST_P(TrainTest, ALossThatIsNoNumberEndsTheRun) {
  expect_agreed_error(
      [&] {
        run(kPlain, "nan", {"optimizer=sgd", "schedule.learning_rate=1e30"});
      },
      ExitCode::kFailure, "is not finite");
}

// 28 steps with short batches between, so that recorded and queued ones take turns.
TEST_P(TrainTest, RecordedStepsEqualEagerOnes) {
  if (GetParam() == "cpu") GTEST_SKIP() << "the CPU records nothing";
  for (const char* network : {kSyncNorm, kOwnNorm}) {
    const std::string name = network == kOwnNorm ? "own" : "sync";
    run(network, name + "-recorded");
    run(network, name + "-eager", {"train.eager=true"});
    EXPECT_EQ(trace(name + "-recorded").size(), 28u);
    EXPECT_EQ(trace(name + "-recorded"), trace(name + "-eager"));
  }
}

TEST_P(TrainTest, DevicesAgreeWithTheCpu) {
  if (GetParam() == "cpu") GTEST_SKIP() << "nothing to compare with";
  for (const char* network : {kSyncNorm, kPlain}) {
    const std::string name = network == kPlain ? "plain" : "sync";
    run(network, name, {"train.max_steps=26"});
    run(network, name + "-cpu", {"train.max_steps=26", "train.device=cpu"});
    expect_same_losses(name + "-cpu", name, 26, 1e-4);
  }
}

TRIREME_ON_ALL_DEVICES(TrainTest);

}  // namespace
}  // namespace trireme::train
