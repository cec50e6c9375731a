#include "trainer/checkpoint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "small_model.h"
#include "temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  Snapshot snapshot() {
    Snapshot taken(model_.arrays());
    taken.take();
    return taken;
  }

  fs::path save(int64_t step, int64_t keep = 10, bool best = false) {
    model_.fill(step);
    CheckpointState state;
    state.step = step;
    state.epoch = 2;
    state.position = 30;
    state.seed = 0xFFFFFFFFFFFFFFFF;
    state.config_hash = "abc";
    state.ranks = 3;
    state.epoch_loss_sum = 0.1;
    state.epoch_samples = 30;
    state.best_accuracy = 0.75;
    state.loss_scale = {.scale = 2048, .good_steps = 17, .skipped = 3};
    state.best_step = 4;
    return Checkpoints(checkpoints(), keep).save(state, snapshot(), best);
  }

  fs::path checkpoints() const { return folder_.path() / "checkpoints"; }

  std::optional<FoundCheckpoint> newest() {
    warnings_.clear();
    return newest_checkpoint(checkpoints(),
                             [&](const std::string& text) { warnings_.push_back(text); });
  }

  std::string error_of(const fs::path& path) {
    try {
      find_checkpoint(path, [](const std::string&) {});
    } catch (const DataError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadData);
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
  SmallModel model_;
  std::vector<std::string> warnings_;
};

TEST_F(CheckpointTest, ComesBackAsItWas) {
  const fs::path path = save(12);
  EXPECT_EQ(path.filename(), "step-00000012");
  const auto values = model_.values;
  const auto velocity = model_.velocity;
  const auto running = model_.running;
  model_.clear();

  const auto found = newest();
  ASSERT_TRUE(found);
  load_model(*found, model_.arrays());
  load_optimizer(*found, model_.arrays());
  EXPECT_EQ(model_.values, values);
  EXPECT_EQ(model_.velocity, velocity);
  EXPECT_EQ(model_.running, running);
  EXPECT_EQ(found->state.step, 12);
  EXPECT_EQ(found->state.epoch, 2);
  EXPECT_EQ(found->state.position, 30);
  EXPECT_EQ(found->state.seed, 0xFFFFFFFFFFFFFFFF);
  EXPECT_EQ(found->state.config_hash, "abc");
  EXPECT_EQ(found->state.ranks, 3);
  EXPECT_EQ(found->state.epoch_loss_sum, 0.1);
  EXPECT_EQ(found->state.epoch_samples, 30);
  EXPECT_EQ(found->state.best_accuracy, 0.75);
  EXPECT_EQ(found->state.loss_scale->scale, 2048);
  EXPECT_EQ(found->state.loss_scale->good_steps, 17);
  EXPECT_EQ(found->state.loss_scale->skipped, 3);
  EXPECT_EQ(found->state.best_step, 4);
}

TEST_F(CheckpointTest, NothingIsFoundWhereThereIsNothing) {
  EXPECT_FALSE(newest());
  fs::create_directories(checkpoints());
  EXPECT_FALSE(newest());
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(CheckpointTest, KeepsTheNewestAndPointsAtTheLast) {
  for (int64_t step : {5, 100, 20, 30}) save(step, 2);
  const auto all = Checkpoints(checkpoints(), 2).list();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].filename(), "step-00000100");
  EXPECT_EQ(all[1].filename(), "step-00000030");
  EXPECT_EQ(slurp(checkpoints() / "latest"), "step-00000030\n");
  // Nothing else is left behind.
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints()), {}), 3);
}

TEST_F(CheckpointTest, TheBestStaysBesideTheNewest) {
  for (int64_t step : {1, 2, 3, 4, 5}) save(step, 2, /*best=*/step == 2);
  const auto all = Checkpoints(checkpoints(), 2).list();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].filename(), "step-00000002");
  const Warn none = [](const std::string&) {};
  EXPECT_EQ(find_checkpoint(checkpoints() / "best", none).state.step, 2);
  EXPECT_EQ(find_checkpoint(checkpoints() / "latest", none).state.step, 5);
  EXPECT_EQ(Checkpoints(checkpoints(), 2).best(), checkpoints() / "step-00000002");
  save(6, 2, /*best=*/true);  // the former one goes
  EXPECT_EQ(Checkpoints(checkpoints(), 2).list().size(), 2u);
}

TEST_F(CheckpointTest, AReplacedOneComesBackWhenNothingHasTakenItsPlace) {
  save(1);
  fs::rename(checkpoints() / "step-00000001", checkpoints() / ".replaced-step-00000001");
  Checkpoints(checkpoints(), 3).clean();
  ASSERT_TRUE(newest());
  fs::copy(checkpoints() / "step-00000001", checkpoints() / ".replaced-step-00000001");
  Checkpoints(checkpoints(), 3).clean();
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints()), {}), 2);
}

TEST_F(CheckpointTest, EveryKindOfDamageIsNamedAndPassedOver) {
  const auto flip = [](const fs::path& path) {
    std::string text = slurp(path);
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    spill(path, text);
  };
  const std::vector<std::pair<std::function<void(const fs::path&)>, std::string>> damages = {
      {[&](const fs::path& p) { flip(p / "model.safetensors"); },
       "model.safetensors: is damaged: checksum"},
      {[&](const fs::path& p) { flip(p / "optimizer.safetensors"); },
       "optimizer.safetensors: is damaged: checksum"},
      {[&](const fs::path& p) { fs::resize_file(p / "model.safetensors", 40); },
       "model.safetensors: has 40 bytes, should have"},
      {[&](const fs::path& p) { fs::remove(p / "optimizer.safetensors"); },
       "optimizer.safetensors: cannot be read: No such file"},
      {[&](const fs::path& p) { fs::remove(p / "manifest.json"); },
       "manifest.json: cannot be read: No such file"},
      {[&](const fs::path& p) { fs::resize_file(p / "manifest.json", 0); },
       "manifest.json: is damaged"},
      {[&](const fs::path& p) { flip(p / "state.json"); }, "state.json: is damaged: checksum"},
  };
  for (const auto& [damage, message] : damages) {
    fs::remove_all(checkpoints());
    save(1);
    const fs::path damaged = save(2);
    damage(damaged);
    const auto found = newest();
    ASSERT_TRUE(found) << message;
    EXPECT_EQ(found->state.step, 1) << message;
    ASSERT_EQ(warnings_.size(), 1u) << message;
    EXPECT_NE(warnings_[0].find("step-00000002"), std::string::npos) << warnings_[0];
    EXPECT_NE(warnings_[0].find(message), std::string::npos) << warnings_[0];
    EXPECT_NE(error_of(damaged).find(message), std::string::npos) << error_of(damaged);
  }
}

// Found by tests/fuzz: numbers of state.json were made to fit.
TEST_F(CheckpointTest, AStateWhoseNumbersDoNotFit) {
  CheckpointState state;
  state.step = 3;
  state.seed = 5;
  state.ranks = 2;
  const std::string good = to_json(state);
  EXPECT_EQ(to_json(state_from_json(good, "state.json")), good);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"seed\": 5", "\"seed\": 18446744077609535115"},
           {"\"ranks\": 2", "\"ranks\": 4294967298"},
           {"\"step\": 3", "\"step\": 3.5"}}) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos) << from << " in " << text;
    text.replace(text.find(from), from.size(), to);
    try {
      state_from_json(text, "state.json");
      ADD_FAILURE() << to;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("state.json: is damaged: "), std::string::npos);
    }
  }
}

TEST_F(CheckpointTest, AllDamagedIsAnError) {
  for (int64_t step : {1, 2}) fs::resize_file(save(step) / "model.safetensors", 1);
  EXPECT_THROW(newest(), DataError);
  EXPECT_EQ(warnings_.size(), 2u);
}

TEST_F(CheckpointTest, AnInterruptedSaveIsNoCheckpointAndIsCleanedUp) {
  save(1);
  // What a kill within a save leaves: everything but the rename.
  fs::copy(checkpoints() / "step-00000001", checkpoints() / ".saving-step-00000002",
           fs::copy_options::recursive);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 1);
  Checkpoints(checkpoints(), 3).clean();
  EXPECT_FALSE(fs::exists(checkpoints() / ".saving-step-00000002"));
  EXPECT_TRUE(fs::exists(checkpoints() / "step-00000001"));
}

TEST_F(CheckpointTest, ADamagedOneOfTheSameStepIsReplaced) {
  fs::resize_file(save(7) / "model.safetensors", 1);
  save(7);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 7);
}

TEST_F(CheckpointTest, LaterOnesCanBeSetAside) {
  for (int64_t step : {1, 2, 3}) save(step);
  Checkpoints(checkpoints(), 3).go_on_from(1);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 1);
  EXPECT_EQ(slurp(checkpoints() / "latest"), "step-00000001\n");
  EXPECT_TRUE(fs::exists(checkpoints() / "set-aside-step-00000003" / "manifest.json"));
}

TEST_F(CheckpointTest, PathsMayBeARunItsCheckpointsOrOneOfThem) {
  save(1);
  const fs::path second = save(2);
  const Warn none = [](const std::string&) {};
  EXPECT_EQ(find_checkpoint(folder_.path(), none).state.step, 2);
  EXPECT_EQ(find_checkpoint(checkpoints(), none).state.step, 2);
  EXPECT_EQ(find_checkpoint(second, none).state.step, 2);
  EXPECT_EQ(find_checkpoint(checkpoints() / "step-00000001/", none).state.step, 1);
  EXPECT_NE(error_of(folder_.path() / "nowhere").find("no such folder"), std::string::npos);
  fs::create_directory(folder_.path() / "empty");
  EXPECT_NE(error_of(folder_.path() / "empty").find("holds no checkpoint"), std::string::npos);
}

TEST_F(CheckpointTest, ASaveThatFailsThrowsAndHarmsNothing) {
  save(1);
  spill(checkpoints() / ".saving-step-00000002", "in the way");
  fs::permissions(checkpoints() / ".saving-step-00000002", fs::perms::none);
  save(2);  // leftovers are no obstacle
  // A file where the folder should be is one.
  EXPECT_THROW(Checkpoints(checkpoints() / "latest", 3).save({}, snapshot(), false), Error);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 2);
}

TEST_F(CheckpointTest, AnotherModelIsAMatterOfConfiguration) {
  save(1);
  const auto found = newest();
  ASSERT_TRUE(found);
  model_.parameters.all[0].spec.shape = Shape{3, 2};
  try {
    load_model(*found, model_.arrays());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'fc.weight' has shape [2, 3], wanted [3, 2]"),
              std::string::npos)
        << error.what();
  }
  model_.parameters = SmallModel().parameters;
  model_.parameters.all.pop_back();
  EXPECT_THROW(load_model(*found, model_.arrays()), ConfigError);
  model_.parameters = SmallModel().parameters;
  TrainedArrays adam = model_.arrays();
  adam.optimizer = {{"moment1", model_.velocity.data()}};
  EXPECT_THROW(load_optimizer(*found, adam), ConfigError);
}

}  // namespace
}  // namespace trireme
