#include "trainer/checkpoint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Two parameters, padding between them, and a running value.
Parameters small_parameters() {
  Parameters p;
  p.trained.push_back({.name = "fc.weight",
                       .spec = {DType::kF32, Shape{2, 3}, Layout::row_major()},
                       .init = {},
                       .decays = true,
                       .begin = 16,
                       .end = 22});
  p.trained.push_back({.name = "fc.bias",
                       .spec = {DType::kF32, Shape{2}, Layout::row_major()},
                       .init = {},
                       .decays = false,
                       .begin = 32,
                       .end = 34});
  p.elements = 48;
  p.running.push_back({.name = "bn.running_mean",
                       .spec = {DType::kF32, Shape{3}, Layout::row_major()},
                       .initial = 0,
                       .begin = 0});
  p.running_elements = 16;
  return p;
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest()
      : device_(create_cpu_device(1)),
        backend_(create_cpu_backend(*device_)),
        parameters_(small_parameters()),
        values_(48),
        velocity_(48),
        running_(16) {}

  TrainedArrays arrays() {
    return {
        parameters_, *backend_, values_.data(), running_.data(), {{"velocity", velocity_.data()}}};
  }

  // Fills the arrays with numbers that tell the step.
  void fill(int64_t step) {
    for (const Parameter& p : parameters_.trained) {
      for (int64_t i = p.begin; i < p.end; ++i) {
        values_[static_cast<size_t>(i)] = static_cast<float>(1000 * step + i);
        velocity_[static_cast<size_t>(i)] = static_cast<float>(1000 * step - i);
      }
    }
    for (size_t i = 0; i < 3; ++i) running_[i] = static_cast<float>(step) + 0.5f;
  }

  fs::path save(int64_t step, int64_t keep = 10) {
    fill(step);
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
    return Checkpoints(checkpoints(), keep).save(state, arrays());
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
  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  Parameters parameters_;
  std::vector<float> values_;
  std::vector<float> velocity_;
  std::vector<float> running_;
  std::vector<std::string> warnings_;
};

TEST_F(CheckpointTest, ComesBackAsItWas) {
  const fs::path path = save(12);
  EXPECT_EQ(path.filename(), "step-00000012");
  const auto values = values_;
  const auto velocity = velocity_;
  const auto running = running_;
  std::fill(values_.begin(), values_.end(), 0.0f);
  std::fill(velocity_.begin(), velocity_.end(), 0.0f);
  std::fill(running_.begin(), running_.end(), 0.0f);

  const auto found = newest();
  ASSERT_TRUE(found);
  load_model(*found, arrays());
  load_optimizer(*found, arrays());
  EXPECT_EQ(values_, values);
  EXPECT_EQ(velocity_, velocity);
  EXPECT_EQ(running_, running);
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
  Checkpoints(checkpoints(), 3).set_aside_after(1);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 1);
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
  EXPECT_THROW(Checkpoints(checkpoints() / "latest", 3).save({}, arrays()), Error);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 2);
}

TEST_F(CheckpointTest, AnotherModelIsAMatterOfConfiguration) {
  save(1);
  const auto found = newest();
  ASSERT_TRUE(found);
  parameters_.trained[0].spec.shape = Shape{3, 2};
  try {
    load_model(*found, arrays());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'fc.weight' has shape [2, 3], wanted [3, 2]"),
              std::string::npos)
        << error.what();
  }
  parameters_ = small_parameters();
  parameters_.trained.pop_back();
  EXPECT_THROW(load_model(*found, arrays()), ConfigError);
  parameters_ = small_parameters();
  TrainedArrays adam = arrays();
  adam.optimizer = {{"moment1", velocity_.data()}};
  EXPECT_THROW(load_optimizer(*found, adam), ConfigError);
}

}  // namespace
}  // namespace trireme
