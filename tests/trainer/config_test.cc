#include "trainer/config/config.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data/transforms/transform.h"
#include "temporary_folder.h"

namespace trireme::train {
namespace {

// Line 1 is the seed, line 2 the model, and so on.
const char* const kGood = R"(seed: 7
model { zoo { name: "mlp" hidden: 32 } }
data { synthetic { shape: [8] } }
batch { global: 64 }
train { epochs: 3 }
optimizer { sgd { momentum: 0.9 } weight_decay: 1e-4 }
schedule { learning_rate: 0.1 cosine {} }
)";

Config parse(const std::string& text, const std::vector<std::string>& assignments = {}) {
  return parse_config(text, "run.txtpb", assignments);
}

std::string error_of(const std::string& text, const std::vector<std::string>& assignments = {}) {
  try {
    parse(text, assignments);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadConfig);
    return error.what();
  }
  return "no error";
}

std::string replaced(const std::string& what, const std::string& with) {
  std::string text = kGood;
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

// The data is not checked.
TEST(Config, ExamplesAreValid) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRIREME_SOURCE "/launch/configs")) {
    SCOPED_TRACE(entry.path().string());
    const Config config = load_config(entry.path().string(), {});
    const DataConfig& data = config.run.data();
    for (const TransformConfig& transform : data.transform()) {
      EXPECT_NO_THROW(data::make_transform(transform, "data.transform"));
    }
    for (const TransformConfig& transform : data.eval_transform()) {
      EXPECT_FALSE(data::make_transform(transform, "data.eval_transform")->random());
    }
    ++found;
  }
  EXPECT_GE(found, 6);
}

TEST(Config, ReadsAndFillsInDefaults) {
  const Config config = parse(kGood);
  EXPECT_EQ(config.run.seed(), 7u);
  EXPECT_EQ(config.run.batch().global(), 64);
  EXPECT_FALSE(config.run.batch().has_micro());
  EXPECT_TRUE(config.run.train().has_precision());
  EXPECT_EQ(config.run.train().device(), "auto");
  EXPECT_EQ(config.run.checkpoint().keep(), 3);
  EXPECT_EQ(config.run.buckets().bytes(), 25 << 20);
  EXPECT_TRUE(config.run.optimizer().sgd().has_nesterov());
  EXPECT_EQ(config.run.schedule().cosine().min_learning_rate(), 0);
}

TEST(Config, ResolvedTextReadsBackTheSame) {
  const Config config = parse(kGood, {"optimizer.adamw.beta1=0.8"});
  const std::string text = to_text(config.run);
  EXPECT_EQ(to_text(parse(text).run), text);
  EXPECT_NE(text.find("beta2"), std::string::npos) << text;
}

TEST(Config, ErrorsNameLineFieldReasonAndNearestName) {
  struct Case {
    std::string text;
    std::string message;
  };
  const std::vector<Case> cases = {
      {replaced("momentum: 0.9", "momentun: 0.9"),
       "run.txtpb:6: optimizer.sgd.momentun: no such field; did you mean 'momentum'?"},
      {replaced("optimizer {", "optimiser {"),
       "run.txtpb:6: optimiser: no such field; did you mean 'optimizer'?"},
      {replaced("epochs: 3", "epochs: \"three\""),
       "run.txtpb:5: train.epochs: expected integer, got: \"three\""},
      {replaced("epochs: 3", "epochs: 3\n precision: FP8\n device: \"cpu\""),
       "run.txtpb:6: train.precision: 'FP8' is not one of FP32, TF32, BF16, FP16; did you mean "
       "'FP32'?"},
      {replaced("momentum: 0.9", "nesterov: maybe"), "run.txtpb:6: optimizer.sgd.nesterov: "},
      {replaced("global: 64", "global: 0"), "run.txtpb:4: batch.global: must be at least 1, got 0"},
      {replaced("global: 64", "global: 9223372036854775808 micro: 8"),
       "run.txtpb:4: batch.global: integer out of range (9223372036854775808)"},
      {replaced("global: 64", ""), "run.txtpb:4: batch.global: is missing"},
      {replaced("epochs: 3", "epochs: 3 threads: 2147483647"),
       "run.txtpb:5: train.threads: must be at most 4096, got 2147483647"},
      {replaced("batch { global: 64 }", ""), "run.txtpb: batch.global: is missing"},
      {replaced("epochs: 3", ""), "run.txtpb:5: train.epochs: is missing: set train.epochs or"},
      {replaced("epochs: 3", "epochs: 3 device: \"gpu\""),
       "run.txtpb:5: train.device: 'gpu' is not one of auto, cpu, cuda; did you mean 'cpu'?"},
      {replaced("learning_rate: 0.1", "learning_rate: -1"),
       "run.txtpb:7: schedule.learning_rate: must be a finite number >= 0, got -1"},
      {replaced("learning_rate: 0.1", "learning_rate: 1e39"),
       "run.txtpb:7: schedule.learning_rate: must be at most 3.4028234663852886e+38, got 1e+39"},
      {replaced("learning_rate: 0.1", "learning_rate: -1e-310"),
       "run.txtpb:7: schedule.learning_rate: -1e-310 is closer to 0 than 1.175e-38"},
      {replaced("epochs: 3", "epochs: 3 clip_norm: 1.17e-38"),
       "run.txtpb:5: train.clip_norm: 1.17e-38 is closer to 0"},
      {replaced("cosine {}", "step { gamma: 0.5 }"),
       "run.txtpb:7: schedule.step: has no length: set steps or epochs"},
      {replaced("cosine {}", "multi_step { steps: [9, 5] }"),
       "run.txtpb:7: schedule.multi_step.steps: milestones must be in ascending order"},
      {replaced("momentum: 0.9", "momentum: 1.5"),
       "run.txtpb:6: optimizer.sgd.momentum: must be in [0, 1), got 1.5"},
      {replaced("momentum: 0.9", "nesterov: true"),
       "run.txtpb:6: optimizer.sgd.nesterov: requires optimizer.sgd.momentum > 0"},
      {replaced("sgd { momentum: 0.9 }", "lion { beta2: 1 }"),
       "run.txtpb:6: optimizer.lion.beta2: must be in [0, 1), got 1"},
      {replaced("sgd { momentum: 0.9 }", "lars { trust_coefficient: 0 }"),
       "run.txtpb:6: optimizer.lars.trust_coefficient: must be a finite number > 0, got 0"},
      {replaced("sgd { momentum: 0.9 }", "lars { momentum: 0 nesterov: true }"),
       "run.txtpb:6: optimizer.lars.nesterov: requires optimizer.lars.momentum > 0"},
      {replaced("sgd { momentum: 0.9 }", "lamb { epsilon: -1 }"),
       "run.txtpb:6: optimizer.lamb.epsilon: must be a finite number > 0, got -1"},
      {replaced("sgd { momentum: 0.9 }", "ema { warmup: true }"),
       "run.txtpb:6: optimizer.ema.decay: is missing: set it to 0.999"},
      {replaced("sgd { momentum: 0.9 }", "ema { decay: 1 }"),
       "run.txtpb:6: optimizer.ema.decay: must be in [0, 1), got 1"},
      {replaced("sgd { momentum: 0.9 }", "group { parameters: 'a' }\n group { weight_decay: 0 }"),
       "run.txtpb:7: optimizer.group[1].parameters: is missing"},
      {replaced("sgd { momentum: 0.9 }", "group { parameters: 'a' learning_rate_scale: -1 }"),
       "run.txtpb:6: optimizer.group[0].learning_rate_scale: must be a finite number >= 0, got -1"},
      {replaced("seed: 7", "seed: 7 seed: 8"), "run.txtpb:1: seed: "},
      {replaced("seed: 7", "checks { parameter_checksum_every_steps: -1 }"),
       "run.txtpb:1: checks.parameter_checksum_every_steps: must be at least 0, got -1"},
      {replaced("seed: 7", "checks { non_finite: SKIP max_skipped: 0 }"),
       "run.txtpb:1: checks.max_skipped: must be at least 1, got 0"},
      {replaced("seed: 7", "checks { loss_spike_stds: -3 }"),
       "run.txtpb:1: checks.loss_spike_stds: must be a finite number >= 0, got -3"},
      {replaced("seed: 7", "checks { loss_spike_stds: 1e-400 }"),
       "run.txtpb:1: checks.loss_spike_stds: 1e-400 is out of range"},
      {replaced("seed: 7", "checkpoint { timeout_seconds: 1e400 }"),
       "run.txtpb:1: checkpoint.timeout_seconds: 1e400 is out of range"},
      {replaced("momentum: 0.9", "momentum: 1e-50f"),
       "run.txtpb:6: optimizer.sgd.momentum: 1e-50f is out of range"},
      {replaced("momentum: 0.9", "momentum: -1e39"),
       "run.txtpb:6: optimizer.sgd.momentum: 1e39 is out of range"},
      {replaced("cosine {}", "multi_step { epochs: [0.5, 1e-400] }"),
       "run.txtpb:7: schedule.multi_step.epochs"},
      {replaced("seed: 7", "checkpoint { timeout_seconds: 0 }"),
       "run.txtpb:1: checkpoint.timeout_seconds: must be a finite number > 0, got 0"},
      {replaced("seed: 7", "watchdog { timeout_seconds: -1 }"),
       "run.txtpb:1: watchdog.timeout_seconds: must be a finite number >= 0, got -1"},
      {replaced("seed: 7", "watchdog { first_timeout_seconds: inf }"),
       "run.txtpb:1: watchdog.first_timeout_seconds: must be a finite number >= 0, got inf"},
      {replaced("seed: 7", "watchdog { straggler_fraction: 1 }"),
       "run.txtpb:1: watchdog.straggler_fraction: must be in [0, 1), got 1"},
      {replaced(
           "model { zoo { name: \"mlp\" hidden: 32 } }",
           "model { network {\n layer { dense { units: 3 } }\n layer { dense { unit: 3 } } } }"),
       "run.txtpb:4: model.network.layer[1].dense.unit: no such field; did you mean 'units'?"},
      {replaced("train { epochs: 3 }", "train { epochs: 3"), "run.txtpb:"},
  };
  for (const Case& c : cases) {
    const std::string error = error_of(c.text);
    EXPECT_TRUE(error.starts_with(c.message)) << "got  " << error << "\nwant " << c.message;
  }
}

TEST(Config, AssignmentsReachEveryKindOfField) {
  const Config config = parse(
      kGood, {"train.precision=bf16", "run_dir=runs/my run", "batch.micro=8", "train.clip_norm=0.5",
              "optimizer.sgd.nesterov=true", "model.zoo.hidden=16,8", "data.root=\"x\"",
              "schedule.one_cycle.rising_fraction=0.2", "schedule.warmup={epochs: 0.5}"});
  EXPECT_EQ(config.run.train().precision(), BF16);
  EXPECT_EQ(config.run.run_dir(), "runs/my run");
  EXPECT_EQ(config.run.batch().micro(), 8);
  EXPECT_EQ(config.run.train().clip_norm(), 0.5f);
  EXPECT_TRUE(config.run.optimizer().sgd().nesterov());
  ASSERT_EQ(config.run.model().zoo().hidden_size(), 2);
  EXPECT_EQ(config.run.model().zoo().hidden(1), 8);
  EXPECT_EQ(config.run.data().root(), "x");
  EXPECT_TRUE(config.run.schedule().has_one_cycle());  // replaces cosine
  EXPECT_EQ(config.run.schedule().warmup().epochs(), 0.5);
}

TEST(Config, LaterAssignmentsWinAndMessagesCanBeNamed) {
  const Config config =
      parse(kGood, {"optimizer=adam", "optimizer.adam.beta1=0.5", "seed=1", "seed=2"});
  EXPECT_TRUE(config.run.optimizer().has_adam());
  EXPECT_EQ(config.run.optimizer().adam().beta1(), 0.5f);
  EXPECT_EQ(config.run.seed(), 2u);
}

TEST(Config, AssignmentsReachElementsOfRepeatedMessages) {
  const std::string text =
      replaced("zoo { name: \"mlp\" hidden: 32 }", "network { layer { relu {} } }");
  const Config config =
      parse(text, {"model.network.layer[0].dense.units=5", "model.network.layer[1].name=out"});
  EXPECT_EQ(config.run.model().network().layer(0).dense().units(), 5);
  EXPECT_EQ(config.run.model().network().layer(1).name(), "out");
}

TEST(Config, WrongAssignmentsNamePathAndNearestField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"optimizer.sgd.momentun=0.9",
       "--set: optimizer.sgd.momentun: no field 'momentun'; did you mean 'momentum'?"},
      {"batch.globl=3", "--set: batch.globl: no field 'globl'; did you mean 'global'?"},
      {"batch.global=many", "--set: batch.global: expected an integer, got 'many'"},
      {"batch.global=3.5", "--set: batch.global: expected an integer, got '3.5'"},
      {"seed=-1", "--set: seed: expected an integer >= 0, got '-1'"},
      {"train.threads=99999999999", "--set: train.threads: 99999999999 is out of range"},
      {"train.precision=FP8", "--set: train.precision: 'FP8' is not one of FP32, TF32, BF16, FP16"},
      {"optimizer.sgd.nesterov=perhaps",
       "--set: optimizer.sgd.nesterov: expected true or false, got 'perhaps'"},
      {"schedule=cosin",
       "--set: schedule: 'cosin' is not one of constant, step, multi_step, cosine, polynomial, "
       "one_cycle; did you mean 'cosine'?"},
      {"checks=",
       "--set: checks: expected {FIELD: VALUE ...}, got ''; there are the fields "
       "parameter_checksum_every_steps, non_finite, max_skipped, loss_spike_stds"},
      {"schedule.learning_rate=1e-400", "--set: schedule.learning_rate: 1e-400 is out of range"},
      {"optimizer={adam {epsilon: 1e-60}}",
       "--set optimizer:1: adam.epsilon: 1e-60 is out of range"},
      {"batch.global.x=1", "--set: batch.global.x: 'global' is a value and has no fields"},
      {"model.network.layer.name=x",
       "--set: model.network.layer.name: 'layer' is repeated: use layer[0] and so on"},
      {"model.network.layer[7].name=x",
       "--set: model.network.layer[7].name: 'layer' has only 0 elements"},
      {"batch.global", "--set batch.global: is not of the form field.path=value"},
      {"batch.global=0", "--set: batch.global: must be at least 1, got 0"},
      {"data.holdout_stratified=true",
       "--set: data.holdout_stratified: needs data.holdout, the fraction to hold out"},
      {"batch.global=9223372036854775807",
       "--set: batch.global: must be at most 281474976710656, got 9223372036854775807"},
      {"checkpoint.timeout_seconds=1e10",
       "--set: checkpoint.timeout_seconds: must be at most 1000000000, got 10000000000"},
  };
  for (const auto& [assignment, message] : cases) {
    const std::string error = error_of(kGood, {assignment});
    EXPECT_TRUE(error.starts_with(message)) << "got  " << error << "\nwant " << message;
  }
}

TEST(Config, LocatedAddsThePlaceOfTheField) {
  const Config config = parse(kGood);
  EXPECT_STREQ(config.located(ConfigError("model.zoo.name", "no such network")).what(),
               "run.txtpb:2: model.zoo.name: no such network");
  EXPECT_STREQ(config.located(ConfigError("data.root: no such folder")).what(),
               "run.txtpb:3: data.root: no such folder");
  EXPECT_STREQ(config.located(ConfigError("something else")).what(), "something else");
}

TEST(Config, MissingFileIsNamed) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "none.txtpb").string();
  try {
    load_config(path, {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), path + ": cannot be read: No such file or directory");
  }
}

// Each of these took minutes, or forever.
TEST(Config, RefusesHostileFiles) {
  std::string nested;
  for (int i = 0; i < 30'000; ++i) nested += "model {\n";
  EXPECT_EQ(error_of(nested), "run.txtpb:101: more than 100 messages are nested");
  EXPECT_EQ(error_of("seed: 1\n" + std::string(50'000'000, 'a') + ": 1"),
            "run.txtpb:2: a name has 50000000 characters; at most 1000 are allowed");
  std::string layers = "model {\nnetwork {\n";
  for (int i = 0; i < 1'000'000; ++i) layers += "layer { relu {} }\n";
  EXPECT_EQ(error_of(layers + "} }"), "run.txtpb:100002: more than 200000 messages");
  const TemporaryFolder folder;
  const std::string fifo = (folder.path() / "fifo.txtpb").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string large = (folder.path() / "large.txtpb").string();
  std::ofstream(large) << "#";
  std::filesystem::resize_file(large, size_t{100} << 20);
  for (const auto& [file, reason] : {std::pair{fifo, "it is not a regular file"},
                                     {std::string("/dev/zero"), "it is not a regular file"},
                                     {large, "it is larger than 64.0 MiB"}}) {
    try {
      load_config(file, {});
      ADD_FAILURE() << file;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(), file + ": cannot be read: " + reason);
    }
  }
}

TEST(Config, HashDependsOnTheFieldsThatAffectTheResult) {
  const std::string hash = config_hash(parse(kGood).run);
  for (const char* same :
       {"run_dir=elsewhere", "data.root=elsewhere", "train.threads=3", "checkpoint.keep=9",
        "checkpoint.on_error=STOP", "train.epochs=5", "watchdog.timeout_seconds=3",
        "checks.loss_spike_stds=3", "data.threads=3", "data.max_bad_records=3"}) {
    EXPECT_EQ(config_hash(parse(kGood, {same}).run), hash) << same;
  }
  for (const char* other : {"seed=8", "batch.global=32", "schedule.learning_rate=0.2",
                            "optimizer.sgd.momentum=0.8", "model.zoo.hidden=31"}) {
    EXPECT_NE(config_hash(parse(kGood, {other}).run), hash) << other;
  }
}

}  // namespace
}  // namespace trireme::train
