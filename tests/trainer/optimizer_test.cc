// Complete runs with each optimizer, to test the guarantees that hold for all of them.
#include <map>

#include "runs.h"
#include "step_fixture.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/infer/evaluate_checkpoint.h"

namespace trireme::train {
namespace {

struct OptimizerCase {
  std::string name;
  std::vector<std::string> assignments;
};

std::vector<OptimizerCase> cases() {
  return {
      {"lion", {"optimizer={lion {} weight_decay: 0.1}", "schedule.learning_rate=0.001"}},
      {"lars",
       {"optimizer={lars {trust_coefficient: 0.02} weight_decay: 1e-3}",
        "schedule.learning_rate=0.5"}},
      {"lamb", {"optimizer={lamb {} weight_decay: 0.01}", "schedule.learning_rate=0.01"}},
      {"groups",
       {"optimizer={adamw {} weight_decay: 0.01 group {parameters: '.*[.]bias' "
        "learning_rate_scale: 2} group {parameters: 'conv.*' learning_rate_scale: 0.1 "
        "weight_decay: 0}}",
        "schedule.learning_rate=0.003"}},
      {"ema",
       {"optimizer={sgd {momentum: 0.9} weight_decay: 1e-3 ema {decay: 0.9 warmup: true}}",
        "schedule.learning_rate=0.02"}},
  };
}

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Parameters, optimizer state and averages.
std::vector<float> all_values(const StateArrays& state) {
  std::vector<const StateArrays::Array*> arrays{&state.parameters()};
  for (const StateArrays::Array& array : state.optimizer()) arrays.push_back(&array);
  std::vector<float> all;
  for (const StateArrays::Array* array : arrays) {
    for (const StateArrays::Tensor& tensor : array->tensors) {
      std::vector<float> values(static_cast<size_t>(tensor.spec.shape.elements()));
      state.get(tensor, values);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

using Tensors = std::map<std::string, std::vector<float>>;

// Tensors whose names begin with `prefix`, by their names without it.
Tensors tensors_in(const fs::path& file, const std::string& prefix = "") {
  const SafetensorsReader reader(file);
  Tensors tensors;
  for (const std::string& name : reader.names()) {
    if (name.starts_with(prefix)) tensors[name.substr(prefix.size())] = reader.read(name);
  }
  return tensors;
}

class OptimizerTest : public RunTest {
 protected:
  // The precisions below FP32 in which the device can compute.
  std::vector<std::string> low_precisions() const {
    std::vector<std::string> all;
    if (GetParam() == "cuda" || ops::cpu_computes_in(DType::kBF16)) all.push_back("BF16");
    if (GetParam() == "cuda") all.push_back("FP16");
    return all;
  }

  // The resumed run is stopped as if killed after step 10: the steps after the checkpoint of step 7
  // are lost.
  void expect_same_when_resumed(const char* network, const std::string& name,
                                const std::vector<std::string>& assignments) {
    const auto saved = with(assignments, {"checkpoint.every_steps=7", "train.epochs=5"});
    run(network, name + "-straight", saved);
    run(network, name + "-resumed", with(saved, {"train.max_steps=10"}));
    if (world_->rank() == 0) fs::remove_all(checkpoint(name + "-resumed", 10));
    run(network, name + "-resumed", saved);
    EXPECT_EQ(trace(name + "-straight").size(), 20u);
    EXPECT_EQ(trace(name + "-resumed"), trace(name + "-straight"));
    for (const char* part : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(file(checkpoint(name + "-resumed", 20) / part) ==
                  file(checkpoint(name + "-straight", 20) / part))
          << part;
    }
  }
};

TEST_P(OptimizerTest, RanksTogetherEqualOneRank) {
  for (const OptimizerCase& t : cases()) {
    SCOPED_TRACE(t.name);
    const auto assignments = with(t.assignments, {"train.max_steps=20"});
    run_alone(kSyncNorm, t.name + "-alone", assignments);
    run(kSyncNorm, t.name, assignments);
    expect_same_losses(t.name + "-alone", t.name, 20);
    EXPECT_NEAR(events(t.name, "eval").back()["eval_loss"].get<double>(),
                events(t.name + "-alone", "eval").back()["eval_loss"].get<double>(), 1e-4);
  }
}

TEST_P(OptimizerTest, ResumedRunsAreBitwiseEqual) {
  for (const OptimizerCase& t : cases()) {
    SCOPED_TRACE(t.name);
    expect_same_when_resumed(kOwnNorm, t.name, t.assignments);
  }
}

TEST_P(OptimizerTest, LowPrecisionRunsResumeAndMatchF32) {
  for (const OptimizerCase& t : cases()) {
    run(kOwnNorm, t.name + "-FP32", with(t.assignments, {"train.epochs=5"}));
    for (const std::string& precision : low_precisions()) {
      SCOPED_TRACE(t.name + " in " + precision);
      const auto assignments = with(t.assignments, {"train.precision=" + precision});
      expect_same_when_resumed(kOwnNorm, t.name + precision, assignments);
      expect_same_losses(t.name + "-FP32", t.name + precision + "-straight", 20, 0.05);
    }
  }
}

// Frozen parameters are outside of the arrays that the optimizer updates.
TEST_P(OptimizerTest, RanksTogetherEqualOneRankWithFrozenParameters) {
  for (const OptimizerCase& t : cases()) {
    if (t.name == "groups") continue;
    SCOPED_TRACE(t.name);
    const auto frozen = with(t.assignments, {"model.freeze='conv2d_0[.].*'", "train.max_steps=20"});
    run_alone(kSyncNorm, t.name + "-alone", frozen);
    run(kSyncNorm, t.name, frozen);
    expect_same_losses(t.name + "-alone", t.name, 20);
  }
}

// A skipped step changes nothing, and the run continues as if it had not happened.
TEST_P(OptimizerTest, SkippedStepsChangeNothing) {
  if (GetParam() == "cpu") GTEST_SKIP() << "FP16 needs a GPU";
  for (const OptimizerCase& t : cases()) {
    SCOPED_TRACE(t.name);
    const auto assignments = with(
        t.assignments, {"train.device=" + GetParam(), "train.precision=FP16", "train.epochs=9"});
    std::vector<std::vector<float>> values;
    for (const bool overflows : {false, true}) {
      StepFixture f(*world_, kStepConfig, assignments);
      f.step().optimizer().set_loss_scale({.scale = 1024}, f.step().stream());
      f.run(0, 0.01f);
      if (overflows) {
        const std::vector<float> before = all_values(f.step().state());
        f.step().optimizer().set_loss_scale({.scale = 1 << 24}, f.step().stream());
        EXPECT_EQ(f.run(1, 0.01f).loss_scale->skipped, 1);
        EXPECT_EQ(all_values(f.step().state()), before);
        f.step().optimizer().set_loss_scale({.scale = 1024, .skipped = 1}, f.step().stream());
      } else {
        f.next();
      }
      f.run(overflows ? 2 : 1, 0.01f);
      values.push_back(all_values(f.step().state()));
    }
    EXPECT_EQ(values[0], values[1]);
  }
}

// A group with all parameters is equivalent to settings without a group.
TEST_P(OptimizerTest, AGroupScalesTheRateAndReplacesTheDecay) {
  run(kPlain, "plain",
      {"optimizer={sgd {momentum: 0.9} weight_decay: 0.01}", "schedule.learning_rate=0.02",
       "train.max_steps=20"});
  run(kPlain, "group",
      {"optimizer={sgd {momentum: 0.9} weight_decay: 0.5 group {parameters: '.*' "
       "learning_rate_scale: 0.25 weight_decay: 0.01}}",
       "schedule.learning_rate=0.08", "train.max_steps=20"});
  EXPECT_TRUE(model("group", 20) == model("plain", 20));
}

TEST_P(OptimizerTest, RejectsGroupsWithoutParameters) {
  const auto expect_rejected = [&](const std::vector<std::string>& assignments,
                                   const std::string& part) {
    expect_agreed_error([&] { run(kPlain, "rejected", assignments); }, ExitCode::kBadConfig, part);
  };
  expect_rejected(
      {"optimizer={group {parameters: 'conv2d_1.*'}}"},
      "optimizer.group[0].parameters: 'conv2d_1.*' matches the whole name of no parameter; did you "
      "mean 'conv2d_0.*'?");
  expect_rejected({"optimizer={group {parameters: '('}}"},
                  "optimizer.group[0].parameters: '(' is not a regular expression");
  expect_rejected({"optimizer={group {parameters: '.*'} group {parameters: 'conv.*'}}"},
                  "optimizer.group[1].parameters: 'conv.*' matches only parameters of the "
                  "earlier optimizer.group[0]; put the more specific pattern first");
  expect_rejected(
      {"optimizer={group {parameters: 'conv.*'}}", "model.freeze='conv.*'"},
      "optimizer.group[0].parameters: 'conv.*' matches only parameters that are frozen by "
      "model.freeze");
}

class EmaTest : public OptimizerTest {
 protected:
  static constexpr const char* kEma = "optimizer.ema.decay=0.75";

  Tensors parameters(const std::string& name, int64_t step) const {
    return tensors_in(checkpoint(name, step) / kModelFile);
  }
  Tensors averages(const std::string& name, int64_t step) const {
    return tensors_in(checkpoint(name, step) / kOptimizerFile, "average.");
  }
  // The weights that predict, export and eval read.
  model::Weights read(const std::string& name, int64_t step) const {
    const Config run = config(kOwnNorm, name);
    const auto data = open_data(run, data::Part::kTraining);
    return read_model(open_checkpoint(checkpoint(name, step)), build_network(run, data->spec()));
  }
};

TEST_P(EmaTest, AveragesParametersAndDoesNotAffectTraining) {
  const std::vector<std::string> saved{"train.max_steps=6", "checkpoint.every_steps=1"};
  run(kOwnNorm, "plain", saved);
  run(kOwnNorm, "ema", with(saved, {kEma}));
  EXPECT_EQ(losses("ema"), losses("plain"));
  EXPECT_TRUE(model("ema", 6) == model("plain", 6));
  if (world_->rank() != 0) return;
  EXPECT_TRUE(averages("plain", 6).empty());
  Tensors wanted = averages("ema", 1);
  for (int64_t step = 2; step <= 6; ++step) {
    const Tensors now = parameters("ema", step);
    for (auto& [name, average] : wanted) {
      for (size_t i = 0; i < average.size(); ++i) {
        average[i] = 0.75f * average[i] + 0.25f * now.at(name)[i];
      }
    }
  }
  for (const auto& [name, average] : averages("ema", 6)) {
    for (size_t i = 0; i < average.size(); ++i) {
      EXPECT_NEAR(average[i], wanted.at(name)[i], 1e-6) << name;
    }
  }
}

TEST_P(EmaTest, IsUsedByEvaluationAndInference) {
  run(kOwnNorm, "plain", {"train.max_steps=6"});
  run(kOwnNorm, "ema", {kEma, "train.max_steps=6"});
  const double loss = events("ema", "eval").back()["eval_loss"];
  EXPECT_NE(loss, events("plain", "eval").back()["eval_loss"].get<double>());
  const CheckpointEvaluation again = evaluate_checkpoint(
      config(kOwnNorm, "ema"), *world_, open_checkpoint(checkpoint("ema", 6)), std::nullopt, false);
  EXPECT_NEAR(again.evaluation.metrics.loss.value(), loss, 1e-6 * loss);
  if (world_->rank() != 0) return;
  const Tensors saved = averages("ema", 6);
  const model::Weights weights = read("ema", 6), raw = read_weights(checkpoint("ema", 6));
  ASSERT_GT(saved.size(), 2u);
  for (const auto& [name, average] : saved) {
    EXPECT_EQ(weights.at(name).values, average) << name;
    EXPECT_EQ(raw.at(name).values, average) << name;
    EXPECT_NE(parameters("ema", 6).at(name), average) << name;
  }
  // Running statistics are not averaged.
  EXPECT_EQ(weights.at("batch_norm_1.running_mean").values,
            parameters("ema", 6).at("batch_norm_1.running_mean"));
}

TEST_P(EmaTest, CanBeEnabledAndDisabledOnResume) {
  run(kPlain, "straight", {"train.max_steps=12"});
  run(kPlain, "later", {"train.max_steps=6"});
  run(kPlain, "later", {kEma, "train.max_steps=7"});
  if (world_->rank() == 0) {
    const Tensors before = parameters("later", 6), after = parameters("later", 7);
    for (const auto& [name, average] : averages("later", 7)) {
      for (size_t i = 0; i < average.size(); ++i) {
        EXPECT_NEAR(average[i], 0.75f * before.at(name)[i] + 0.25f * after.at(name)[i], 1e-6);
      }
    }
  }
  run(kPlain, "later", {"train.max_steps=12"});
  EXPECT_TRUE(model("later", 12) == model("straight", 12));
  if (world_->rank() == 0) {
    EXPECT_FALSE(averages("later", 7).empty());
    EXPECT_TRUE(averages("later", 12).empty());
  }
}

TEST_P(EmaTest, IsIncludedInTheMemory) {
  const auto memory = [&](const std::vector<std::string>& assignments) {
    return StepFixture(*world_, kStepConfig, with({"train.device=" + GetParam()}, assignments))
        .step()
        .memory_bytes()
        .parameters;
  };
  StepFixture fixture(*world_, kStepConfig, {"train.device=" + GetParam()});
  EXPECT_EQ(memory({kEma}), memory({}) + fixture.step().parameters().array_bytes());
}

TRIREME_ON_ALL_DEVICES(OptimizerTest);
TRIREME_ON_ALL_DEVICES(EmaTest);

}  // namespace
}  // namespace trireme::train
