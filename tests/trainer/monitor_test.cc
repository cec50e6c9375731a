#include "trainer/config/monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

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

// Such a run ended after `patience` evaluations, with a best checkpoint that did not exist.
TEST(MonitorTest, RefusesAMetricThatIsNotMeasured) {
  const Config bits = config_with("early_stopping { monitor: 'bits_per_byte' }");
  check_best_metric(bits, {10, /*tokens=*/true, /*text=*/true});
  expect_part(refusal([&] {
                check_best_metric(bits, {10, /*tokens=*/true});
              }),
              "'bits_per_byte' is not measured: this run predicts tokens of which the size as text "
              "is not known; choose one of loss, accuracy, top5, perplexity");
  const Config objective = config_with("early_stopping { monitor: 'objective' }");
  check_best_metric(objective, {.classes = 10, .reweighted = true});
  expect_part(refusal([&] { check_best_metric(objective, {10}); }), "'objective' is not measured");
}

// Samples of numbers: a target for each, and a second one that is always 4.
class Numbers final : public data::Dataset {
 public:
  Numbers(std::vector<float> targets, bool two)
      : targets_(std::move(targets)),
        spec_{.input = {DType::kF32, {1}, Layout::row_major()},
              .target = {DType::kF32, {two ? 2 : 1}, Layout::row_major()}} {}
  const data::SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return std::ssize(targets_); }
  void read(data::SampleId id, std::byte*, std::byte* target) const override {
    ++reads_;
    const float value = targets_[static_cast<size_t>(id.index)];
    if (std::isnan(value)) throw DataError("numbers", "the target is damaged");
    auto* const values = reinterpret_cast<float*>(target);
    values[0] = value;
    if (spec_.target.shape[0] == 2) values[1] = 4;
  }
  std::string description() const override { return "the numbers"; }
  int reads() const { return reads_; }

 private:
  std::vector<float> targets_;
  data::SampleSpec spec_;
  mutable int reads_ = 0;
};

TEST(MonitorTest, RefusesR2OfConstantTargets) {
  const Config r2 = config_with("early_stopping { monitor: 'r2' }");
  const auto refused = [&](const Config& config, const std::vector<float>& targets, bool two) {
    return refusal([&] { check_best_metric(config, Numbers(targets, two)); });
  };
  const Numbers varied({7, 7, 8, 9, 7}, /*two=*/false);
  check_best_metric(r2, varied);
  EXPECT_EQ(varied.reads(), 3) << "reads more than it needs";
  expect_part(refused(r2, {7, 7, 7}, false),
              "run.txtpb:3: train.early_stopping.monitor: 'r2' is not measured: all targets of "
              "output 0 are equal in the numbers; choose one of loss, mae, rmse");
  expect_part(refused(r2, {7, 8, 9}, true), "all targets of output 1 are equal");
  EXPECT_EQ(refused(config_with("early_stopping { monitor: 'mae' }"), {7, 7}, false), "accepted");
  // Bad records count only if they end the run.
  Config skips = r2;
  skips.run.mutable_data()->set_on_bad_record(DataConfig::SKIP);
  EXPECT_EQ(refused(skips, {7, NAN, 8}, false), "accepted");
  EXPECT_THROW(check_best_metric(r2, Numbers({7, NAN, 8}, false)), DataError);
}

TEST(MonitorTest, RejectsInvalidFieldsOfEarlyStopping) {
  const auto error = [](const std::string& fields, const std::string& more = "") {
    return refusal([&] { config_with("early_stopping { " + fields + " } " + more); });
  };
  expect_part(error("monitor: 'acuracy'"),
              "run.txtpb:3: train.early_stopping.monitor: 'acuracy' is not one of loss, objective, "
              "accuracy, top5, "
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
