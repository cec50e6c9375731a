#include "trainer/config/monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace trireme::train {
namespace {

// Returns the message of the ConfigError that f() throws.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(MonitorTest, ScoresOfEvaluations) {
  const auto accuracy = [](double value, double loss) {
    return score_of("accuracy", {.loss = loss, .accuracy = value});
  };
  EXPECT_EQ(accuracy(0.5, 9), 0.5);
  EXPECT_EQ(accuracy(0.5, NAN), 0.5);
  EXPECT_EQ(accuracy(0.0, 9), 0.0);
  EXPECT_EQ(accuracy(0.0, NAN), std::nullopt);
  EXPECT_EQ(accuracy(NAN, 9), std::nullopt);
  const auto loss = [](double value) { return score_of("loss", {.loss = value}); };
  EXPECT_EQ(loss(2), -2);
  EXPECT_EQ(loss(0), 0);
  for (const double value : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
    EXPECT_EQ(loss(value), std::nullopt) << value;
  }
  EXPECT_GT(loss(2), loss(NAN));
  EXPECT_FALSE(loss(NAN) > loss(NAN));
  EXPECT_EQ(score_of("top5", {.loss = 1}), std::nullopt);
}

Config config_with(const std::string& train) {
  return parse_config(
      "model { zoo { name: 'lenet' } } data { synthetic {} } batch { global: 10 }\n"
      "schedule { learning_rate: 1 }\n"
      "train { epochs: 1 " +
          train + " }",
      "run.txtpb", {});
}

TEST(MonitorTest, BestMetricIsTheMonitorOrDependsOnTheTask) {
  EXPECT_EQ(best_metric(config_with("").run, {10}), "accuracy");
  EXPECT_EQ(best_metric(config_with("").run, {0}), "loss");
  EXPECT_EQ(best_metric(config_with("").run, {10, /*tokens=*/true}), "loss");
  EXPECT_EQ(best_metric(config_with("early_stopping {}").run, {10}), "loss");
  const Config top5 = config_with("early_stopping { monitor: 'top5' }");
  EXPECT_EQ(best_metric(top5.run, {10}), "top5");
  check_best_metric(top5, {10});
  check_best_metric(config_with(""), {0});
  expect_part(
      refusal([&] { check_best_metric(top5, {0}); }),
      "run.txtpb:3: train.early_stopping.monitor: 'top5' is not measured: this run predicts "
      "numbers, not classes; choose one of loss, mae, rmse, r2");
  expect_part(refusal([&] { check_best_metric(top5, {3}); }),
              "this run predicts 3 classes; choose one of loss, accuracy, macro_precision");
}

TEST(MonitorTest, RejectsInvalidFieldsOfEarlyStopping) {
  const auto error = [](const std::string& fields, const std::string& more = "") {
    return refusal([&] { config_with("early_stopping { " + fields + " } " + more); });
  };
  expect_part(
      error("monitor: 'acuracy'"),
      "run.txtpb:3: train.early_stopping.monitor: 'acuracy' is not one of loss, accuracy, top5, "
      "perplexity, bits_per_byte, macro_precision, macro_recall, macro_f1, mae, rmse, r2; "
      "did you mean 'accuracy'?");
  expect_part(error("patience: 0"), "train.early_stopping.patience: must be at least 1, got 0");
  expect_part(error("min_delta: -0.1"),
              "train.early_stopping.min_delta: must be a finite number >= 0, got -0.1");
  expect_part(error("min_delta: nan"),
              "train.early_stopping.min_delta: must be a finite number >= 0, got nan");
  expect_part(error("", "eval_every_epochs: 0"),
              "train.early_stopping: requires evaluations: set train.eval_every_epochs");
  expect_part(error("", "} checkpoint { keep_best: false"),
              "train.early_stopping: uses the best checkpoint of the run");
}

}  // namespace
}  // namespace trireme::train
