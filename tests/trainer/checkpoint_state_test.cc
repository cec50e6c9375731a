#include "trainer/checkpoint/checkpoint_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "small_model.h"

namespace trireme::train {
namespace {

// Expects a message about damage that begins like this if `from` is replaced in the state.
void expect_damaged(std::string state, const std::string& from, const std::string& to,
                    const std::string& message) {
  ASSERT_NE(state.find(from), std::string::npos) << from << " in " << state;
  state.replace(state.find(from), from.size(), to);
  try {
    state_from_json(state, "state.json");
    ADD_FAILURE() << to;
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("state.json: is damaged: " + message),
              std::string::npos)
        << error.what();
  }
}

// Found by tests/fuzz: numbers were converted to the type of the field.
TEST(CheckpointState, RejectsNumbersThatDoNotFitTheirType) {
  CheckpointState state;
  state.step = 3;
  state.seed = 5;
  state.ranks = 2;
  const std::string good = to_json(state);
  EXPECT_EQ(to_json(state_from_json(good, "state.json")), good);
  expect_damaged(good, "\"seed\": 5", "\"seed\": 18446744077609535115", "");
  expect_damaged(good, "\"ranks\": 2", "\"ranks\": 4294967298", "");
  expect_damaged(good, "\"step\": 3", "\"step\": 3.5", "");
}

// The checksum is right, as after a bug or a manual edit.
TEST(CheckpointState, ChecksTheRangeOfEachFieldOfTheState) {
  CheckpointState state;
  state.step = 46;
  state.epoch = 1;
  state.position = 30;
  state.seed = 5;
  state.ranks = 2;
  state.epoch_loss_sum = 0.5;
  state.epoch_weight = 29;
  state.best = {"accuracy", 0.25, 23};
  state.stopping = {.metric = "loss", .best = 1.5, .best_step = 20, .waited = 4, .counted_at = 44};
  state.loss_scale = {.scale = 2048, .good_steps = 17, .skipped = 3};
  state.data = some_data();
  const std::string good = to_json(state);
  EXPECT_EQ(to_json(state_from_json(good, "state.json")), good);
  struct Case {
    std::string from, to, message;
  };
  const std::string epochs = "epoch is 9223372036854775807, which is not an integer in [0, 46]";
  for (const auto& [from, to, message] : std::vector<Case>{
           {"\"step\": 46", "\"step\": -1", "step is -1, which is not an integer in [0, "},
           {"\"epoch\": 1", "\"epoch\": 9223372036854775807", epochs},
           {"\"epoch\": 1", "\"epoch\": -1", "epoch is -1"},
           {"\"position\": 30", "\"position\": -30", "position is -30"},
           {"\"position\": 30", "\"position\": 1797",
            "position is 1797, which is not an integer in [0, 1796]"},
           {"\"ranks\": 2", "\"ranks\": 0", "ranks is 0, which is not an integer in [1, "},
           {"\"seed\": 5", "\"seed\": \"a\"", "seed is \"a\", which is not an integer"},
           {"\"epoch_loss_sum\": 0.5", "\"epoch_loss_sum\": null",
            "epoch_loss_sum is null, which is not a number"},
           {"\"epoch_weight\": 29.0", "\"epoch_weight\": -1.0",
            "epoch_weight is -1.0, which is not a number in [0, "},
           {"\"accuracy\"", "\"acuracy\"",
            "metric is 'acuracy', which is not one of loss, objective, accuracy, top5"},
           {"\"value\": 0.25", "\"value\": true", "best.value is true"},
           {"\"step\": 23", "\"step\": 47", "best.step is 47, which is not an integer in [0, 46]"},
           {"\"best_step\": 20", "\"best_step\": -2",
            "early_stopping.best_step is -2, which is not an integer in [0, 46]"},
           {"\"waited\": 4", "\"waited\": 48",
            "early_stopping.waited is 48, which is not an integer in [0, 47]"},
           {"\"counted_at\": 44", "\"counted_at\": 1e9",
            "early_stopping.counted_at is 1000000000.0, which is not an integer"},
           {"\"scale\": 2048.0", "\"scale\": 0.0",
            "loss_scale.scale is 0.0, which is not a number in [1, 16777216]"},
           {"\"good_steps\": 17", "\"good_steps\": -1", "loss_scale.good_steps is -1"},
           {"\"skipped\": 3", "\"skipped\": -3",
            "loss_scale.skipped is -3, which is not an integer in [0, 46]"},
           {"\"samples\": 1797", "\"samples\": 0", "data.training.samples is 0"},
           {"\"samples\": 450", "\"samples\": 0", "data.evaluation.samples is 0"},
           {"\"0123456789abcdef\"", "\"0123456789abcdeg\"", "data.training.inputs is "},
           {"\"version\"", "\"other\"", "data.version is missing"},
           {"\"config_hash\": \"\"", "\"config_hash\": 1", "config_hash is not a string"},
           {"\"columns\": [", "\"columns\": [1, ",
            "data.training.columns is not a list of strings"},
           {"\"seed\"", "\"sead\"", "seed is missing"}}) {
    expect_damaged(good, from, to, message);
  }
}

// An older checkpoint is not used instead, which would silently lose progress.
TEST(CheckpointState, RejectsAStateOfANewerVersion) {
  std::string text = to_json(CheckpointState{});
  ASSERT_NE(text.find("\"format\": 2"), std::string::npos) << text;
  text.replace(text.find("\"format\": 2"), 11, "\"format\": 99");
  try {
    state_from_json(text, "state.json");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("state.json: was written by a newer Trireme, in "
                        "format 99"),
              std::string::npos)
        << error.what();
  }
}

TEST(CheckpointState, StatesOfOtherVersionsHaveNoData) {
  CheckpointState state;
  EXPECT_FALSE(state_from_json(to_json(state), "state.json").data);
  state.data = some_data();
  std::string text = to_json(state);
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
  EXPECT_FALSE(state_from_json(text, "state.json").data);
}

TEST(CheckpointState, DescribesChangesOfTheData) {
  const RunData before = some_data();
  EXPECT_TRUE(changes(before, before).empty());
  RunData now = before;
  now.training = {900, 4, {3, 4}, {"b", "a"}};
  now.evaluation.checksums.targets = 5;
  EXPECT_EQ(changes(before, now),
            (std::vector<std::string>{
                "training samples: 1797 -> 900", "training classes: 10 -> 4",
                "training columns: a, b -> b, a",
                "evaluation targets: checksum 0000000000000002 -> 0000000000000005"}));
  now = before;
  now.training.columns.clear();
  EXPECT_TRUE(changes(now, before).empty());  // written by a version that did not save them
  EXPECT_EQ(changes(before, now),
            std::vector<std::string>{"training columns: a, b -> without a header"});
  now = before;
  now.training.checksums.inputs = 7;
  EXPECT_EQ(
      changes(before, now),
      std::vector<std::string>{"training inputs: checksum 0123456789abcdef -> 0000000000000007"});
}

TEST(CheckpointState, AcceptsNumbersThatAreNotFinite) {
  CheckpointState state;
  state.epoch_loss_sum = NAN;
  state.best = {"loss", -INFINITY, 0};
  const CheckpointState back = state_from_json(to_json(state), "state.json");
  EXPECT_TRUE(std::isnan(back.epoch_loss_sum));
  ASSERT_TRUE(back.best);
  EXPECT_EQ(back.best->value, -INFINITY);
}

// Version 0.1 wrote this format.
TEST(CheckpointState, ReadsFormat1) {
  const std::string common = R"({"format": 1, "step": 46, "epoch": 1, "position": 30, "seed": 5,
      "config_hash": "", "ranks": 2, "epoch_loss_sum": 0.5, )";
  const auto read = [&](const std::string& rest) {
    return state_from_json(common + rest + "}", "state.json");
  };
  const CheckpointState classes =
      read(R"("epoch_samples": 29, "best_accuracy": 0.25, "best_step": 23)");
  EXPECT_EQ(classes.epoch_weight, 29);
  ASSERT_TRUE(classes.best);
  EXPECT_EQ(classes.best->metric, "accuracy");
  EXPECT_EQ(classes.best->value, 0.25);
  EXPECT_EQ(classes.best->step, 23);
  EXPECT_FALSE(classes.stopping);
  const CheckpointState regression =
      read(R"("epoch_samples": 29, "best_loss": 0.75, "best_step": 23)");
  ASSERT_TRUE(regression.best);
  EXPECT_EQ(regression.best->metric, "loss");
  EXPECT_EQ(regression.best->value, 0.75);
  EXPECT_FALSE(read(R"("epoch_samples": 29)").best);
  EXPECT_THROW(read(R"("epoch_samples": 31)"), DataError);
  EXPECT_THROW(read(R"("epoch_samples": 29, "best_accuracy": 1.5, "best_step": 23)"), DataError);
}

}  // namespace
}  // namespace trireme::train
