#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "small_model.h"
#include "temporary_folder.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  Snapshot snapshot() {
    Snapshot result(model_.arrays());
    result.take();
    return result;
  }

  fs::path continue_from(const fs::path& checkpoint, int64_t step) {
    return Checkpoints(checkpoints(), 3)
        .continue_from(checkpoint, step, [&](const std::string& text) {
          EXPECT_NE(text.find(": renamed to set-aside-step-"), std::string::npos) << text;
          warnings_.push_back(text);
        });
  }

  fs::path save(int64_t step, int64_t keep = 10, bool best = false) {
    return save_with_problem(step, keep, best).path;
  }
  SavedCheckpoint save_with_problem(int64_t step, int64_t keep = 10, bool best = false) {
    model_.fill(step);
    if (best) best_step_ = step;
    CheckpointState state;
    state.step = step;
    state.epoch = std::min<int64_t>(2, step - 1);
    state.position = 30;
    state.seed = 0xFFFFFFFFFFFFFFFF;
    state.config = config_;
    state.config_hash = "abc";
    state.ranks = 3;
    state.epoch_loss_sum = 0.1;
    state.epoch_weight = 30.25;
    state.best = {"accuracy", 0.75, best_step_};
    state.stopping = {
        .metric = "accuracy", .best = 0.5, .best_step = 1, .waited = 1, .counted_at = 1};
    state.loss_scale = {.scale = 2048, .good_steps = 17, .skipped = 1};
    state.data = some_data();
    return Checkpoints(checkpoints(), keep).save(state, snapshot());
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

  // Writes the manifest again after a change of a file of the checkpoint.
  static void seal(const fs::path& checkpoint) {
    nlohmann::json manifest = nlohmann::json::parse(slurp(checkpoint / "manifest.json"));
    for (auto& [name, entry] : manifest["files"].items()) {
      const FileDigest digest = digest_of(checkpoint / name);
      entry = {{"bytes", digest.bytes}, {"xxh3_64", fmt::format("{:016x}", digest.hash)}};
    }
    spill(checkpoint / "manifest.json", manifest.dump());
  }

  TemporaryFolder folder_;
  SmallModel model_;
  std::string config_;  // of the run
  int64_t best_step_ = 0;
  std::vector<std::string> warnings_;
};

TEST_F(CheckpointTest, RestoresParametersOptimizerAndState) {
  best_step_ = 4;
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
  EXPECT_EQ(found->state.epoch_weight, 30.25);
  ASSERT_TRUE(found->state.best);
  EXPECT_EQ(found->state.best->metric, "accuracy");
  EXPECT_EQ(found->state.best->value, 0.75);
  EXPECT_EQ(found->state.best->step, 4);
  ASSERT_TRUE(found->state.stopping);
  EXPECT_EQ(found->state.stopping->metric, "accuracy");
  EXPECT_EQ(found->state.stopping->best, 0.5);
  EXPECT_EQ(found->state.stopping->best_step, 1);
  EXPECT_EQ(found->state.stopping->waited, 1);
  EXPECT_EQ(found->state.stopping->counted_at, 1);
  EXPECT_EQ(found->state.loss_scale->scale, 2048);
  EXPECT_EQ(found->state.loss_scale->good_steps, 17);
  EXPECT_EQ(found->state.loss_scale->skipped, 1);
  EXPECT_EQ(found->state.data, some_data());
}

TEST_F(CheckpointTest, FindsNothingInAMissingOrEmptyFolder) {
  EXPECT_FALSE(newest());
  fs::create_directories(checkpoints());
  EXPECT_FALSE(newest());
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(CheckpointTest, KeepsTheNewestAndLatestNamesTheLastSaved) {
  for (int64_t step : {5, 100, 20, 30}) save(step, 2);
  const auto all = Checkpoints(checkpoints(), 2).list();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].filename(), "step-00000100");
  EXPECT_EQ(all[1].filename(), "step-00000030");
  EXPECT_EQ(slurp(checkpoints() / "latest"), "step-00000030\n");
  // No other files remain.
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints()), {}), 3);
}

TEST_F(CheckpointTest, KeepsTheBestAndTheNewest) {
  for (int64_t step : {1, 2, 3, 4, 5}) save(step, 2, /*best=*/step == 2);
  const auto all = Checkpoints(checkpoints(), 2).list();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].filename(), "step-00000002");
  const Warn none = [](const std::string&) {};
  EXPECT_EQ(find_checkpoint(checkpoints() / "best", none).state.step, 2);
  EXPECT_EQ(find_checkpoint(checkpoints() / "latest", none).state.step, 5);
  save(6, 2, /*best=*/true);  // the previous best is deleted
  EXPECT_EQ(Checkpoints(checkpoints(), 2).list().size(), 2u);
}

// A checkpoint of another run with a higher step may have been copied into the folder.
TEST_F(CheckpointTest, RetentionNeverDeletesTheOneJustSaved) {
  for (int64_t step : {138, 115, 92}) save(step, 3);
  for (int64_t step : {46, 69}) {
    const fs::path saved = save(step, 3);
    EXPECT_TRUE(fs::exists(saved / "manifest.json")) << saved;
    EXPECT_EQ(slurp(checkpoints() / "latest"), saved.filename().string() + "\n");
    EXPECT_EQ(Checkpoints(checkpoints(), 3).list().size(), 4u);
  }
}

// The checkpoint is saved and old ones are deleted all the same.
TEST_F(CheckpointTest, ReportsPointersThatCannotBeWritten) {
  save(1, 1);
  fs::remove(checkpoints() / "latest");
  fs::create_directories(checkpoints() / "latest");
  const SavedCheckpoint second = save_with_problem(2, 1);
  EXPECT_EQ(second.path.filename(), "step-00000002");
  EXPECT_NE(second.problem.find("'latest' cannot be written: "), std::string::npos)
      << second.problem;
  EXPECT_NE(second.problem.find("Is a directory"), std::string::npos) << second.problem;
  EXPECT_EQ(Checkpoints(checkpoints(), 1).list(), std::vector<fs::path>{second.path});

  fs::create_directories(checkpoints() / "best");
  const SavedCheckpoint third = save_with_problem(3, 1, /*best=*/true);
  EXPECT_NE(third.problem.find("'best' cannot be written: "), std::string::npos) << third.problem;
  std::vector<std::string> warnings;
  Checkpoints(checkpoints(), 1).continue_from(third.path, 3, [&](const std::string& text) {
    warnings.push_back(text);
  });
  EXPECT_EQ(warnings.size(), 1u);
  // The best is kept though `best` is missing, which is written as soon as possible.
  fs::remove(checkpoints() / "best");
  fs::remove(checkpoints() / "latest");
  EXPECT_EQ(save_with_problem(4, 1).problem, "");
  EXPECT_EQ(slurp(checkpoints() / "best"), "step-00000003\n");
  EXPECT_EQ(Checkpoints(checkpoints(), 1).list().size(), 2u);
}

TEST_F(CheckpointTest, CleanRestoresACheckpointWhoseReplacementIsMissing) {
  save(1);
  fs::rename(checkpoints() / "step-00000001", checkpoints() / ".replaced-step-00000001");
  Checkpoints(checkpoints(), 3).clean();
  ASSERT_TRUE(newest());
  fs::copy(checkpoints() / "step-00000001", checkpoints() / ".replaced-step-00000001");
  Checkpoints(checkpoints(), 3).clean();
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints()), {}), 2);
}

TEST_F(CheckpointTest, ReportsAndSkipsEveryKindOfDamage) {
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
       "model.safetensors: has 40 bytes instead of"},
      // A terabyte would take minutes to read.
      {[&](const fs::path& p) { fs::resize_file(p / "model.safetensors", uintmax_t{1} << 40); },
       "model.safetensors: has 1099511627776 bytes instead of"},
      {[&](const fs::path& p) { fs::remove(p / "optimizer.safetensors"); },
       "optimizer.safetensors: cannot be read: No such file"},
      {[&](const fs::path& p) { fs::remove(p / "manifest.json"); },
       "manifest.json: cannot be read: No such file"},
      {[&](const fs::path& p) { fs::resize_file(p / "manifest.json", 0); },
       "manifest.json: is damaged"},
      {[&](const fs::path& p) {
         fs::remove(p / "manifest.json");
         ASSERT_EQ(::mkfifo((p / "manifest.json").c_str(), 0600), 0);
       },
       "manifest.json: is not a regular file"},
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

TEST_F(CheckpointTest, SkipsAStateWhoseStepDiffersFromTheFolder) {
  save(1);
  const fs::path renamed = checkpoints() / "step-00000099";
  fs::rename(save(2), renamed);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 1);
  const std::string message =
      "state.json: is damaged: step is 2, but the folder is named step-00000099";
  ASSERT_EQ(warnings_.size(), 2u);  // the first: `latest` names another one
  EXPECT_NE(warnings_[1].find(message), std::string::npos) << warnings_[1];
  EXPECT_NE(error_of(renamed / "").find(message), std::string::npos) << error_of(renamed / "");
  // Under any other name it is accepted, as a copy made by a user.
  fs::rename(renamed, folder_.path() / "kept");
  EXPECT_EQ(open_checkpoint(folder_.path() / "kept").state.step, 2);
}

TEST_F(CheckpointTest, ThrowsIfAllAreDamaged) {
  for (int64_t step : {1, 2}) fs::resize_file(save(step) / "model.safetensors", 1);
  EXPECT_THROW(newest(), DataError);
  EXPECT_EQ(warnings_.size(), 2u);
}

TEST_F(CheckpointTest, IgnoresAndCleansUpAnInterruptedSave) {
  save(1);
  // A save that was killed before the rename.
  fs::copy(checkpoints() / "step-00000001", checkpoints() / ".saving-step-00000002",
           fs::copy_options::recursive);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 1);
  Checkpoints(checkpoints(), 3).clean();
  EXPECT_FALSE(fs::exists(checkpoints() / ".saving-step-00000002"));
  EXPECT_TRUE(fs::exists(checkpoints() / "step-00000001"));
}

// The same names in another run's folder are not touched.
TEST_F(CheckpointTest, FollowsNoLinks) {
  for (const int64_t step : {1, 2}) save(step);
  const fs::path others = folder_.path() / "others";
  fs::rename(checkpoints(), others);
  fs::create_directory_symlink(others, checkpoints());
  try {
    save(3, 1);
    FAIL() << "saved through a link";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("checkpoints: is a symbolic link"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(Checkpoints(others, 1).list().size(), 2u);
  EXPECT_FALSE(fs::exists(others / ".saving-step-00000003"));

  fs::remove(checkpoints());
  fs::create_directories(checkpoints());
  fs::create_directory_symlink(others / "step-00000001", checkpoints() / "step-00000001");
  fs::create_directory_symlink(others / "step-00000002", checkpoints() / ".saving-step-00000002");
  const fs::path file = folder_.path() / "file";
  std::ofstream(file) << "content";
  for (const char* pointer : {"latest.trireme-1.tmp", "best.trireme-1.tmp"}) {
    fs::create_symlink(file, checkpoints() / pointer);
  }
  save(2, 1, /*best=*/true);
  save(3, 1);
  EXPECT_EQ(slurp(file), "content");
  EXPECT_EQ(slurp(checkpoints() / "best"), "step-00000002\n");
  EXPECT_FALSE(fs::is_symlink(checkpoints() / "step-00000002"));
  for (const char* name : {"step-00000001", "step-00000002"}) {
    EXPECT_NO_THROW(open_checkpoint(others / name));
  }
}

TEST_F(CheckpointTest, KeepsForeignFilesOfOldCheckpoints) {
  std::ofstream(save(1) / "notes.txt") << "my notes";
  save(2, 1);
  EXPECT_EQ(Checkpoints(checkpoints(), 1).list().size(), 1u);
  EXPECT_EQ(slurp(checkpoints() / "set-aside-step-00000001/notes.txt"), "my notes");
  EXPECT_FALSE(fs::exists(checkpoints() / "set-aside-step-00000001/manifest.json"));
}

TEST_F(CheckpointTest, ReplacesADamagedCheckpointOfTheSameStep) {
  fs::resize_file(save(7) / "model.safetensors", 1);
  save(7);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 7);
}

TEST_F(CheckpointTest, MissingCheckpointsAreReported) {
  save(1);
  fs::remove_all(save(2));
  EXPECT_EQ(newest()->state.step, 1);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("latest names step-00000002, which is missing; the newest is "
                              "step-00000001"),
            std::string::npos)
      << warnings_[0];
  fs::remove_all(checkpoints() / "step-00000001");
  EXPECT_THROW(newest(), DataError);
  Checkpoints(checkpoints(), 1).remove_pointers();
  EXPECT_FALSE(newest());
}

TEST_F(CheckpointTest, SetsLaterCheckpointsAside) {
  const fs::path first = save(1);
  for (int64_t step : {2, 3}) save(step);
  EXPECT_EQ(continue_from(first, 1), first);
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[0].find("renamed to set-aside-step-00000003"), std::string::npos);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 1);
  EXPECT_EQ(slurp(checkpoints() / "latest"), "step-00000001\n");
  EXPECT_TRUE(fs::exists(checkpoints() / "set-aside-step-00000003" / "manifest.json"));
}

TEST_F(CheckpointTest, SetsLinksToNothingAside) {
  const fs::path first = save(1);
  fs::create_symlink("nowhere", checkpoints() / "step-00000002");
  fs::create_symlink("step-00000003", checkpoints() / "step-00000003");
  EXPECT_EQ(continue_from(first, 1), first);
  EXPECT_EQ(warnings_.size(), 2u);
  EXPECT_TRUE(fs::is_symlink(checkpoints() / "set-aside-step-00000002"));
  EXPECT_TRUE(fs::is_symlink(checkpoints() / "set-aside-step-00000003"));
}

TEST_F(CheckpointTest, KeepsAllCheckpointsThatWereSetAside) {
  const fs::path first = save(1);
  for (int future : {1, 2, 3}) {
    spill(save(2) / "mark", std::to_string(future));
    continue_from(first, 1);
  }
  EXPECT_EQ(slurp(checkpoints() / "set-aside-step-00000002" / "mark"), "1");
  EXPECT_EQ(slurp(checkpoints() / "set-aside-step-00000002-2" / "mark"), "2");
  EXPECT_EQ(slurp(checkpoints() / "set-aside-step-00000002-3" / "mark"), "3");
}

TEST_F(CheckpointTest, ACheckpointThatWasSetAsideGetsItsNameBack) {
  const fs::path first = save(1);
  spill(save(2) / "mark", "wanted");
  continue_from(first, 1);
  spill(save(2) / "mark", "other");
  EXPECT_EQ(continue_from(checkpoints() / "set-aside-step-00000002" / "", 2).filename(),
            "step-00000002");
  EXPECT_EQ(slurp(checkpoints() / "latest"), "step-00000002\n");
  EXPECT_EQ(slurp(checkpoints() / "step-00000002" / "mark"), "wanted");
  EXPECT_EQ(slurp(checkpoints() / "set-aside-step-00000002-2" / "mark"), "other");
}

TEST_F(CheckpointTest, ACheckpointWithAShorterNameIsRenamedAndNotSetAside) {
  save(1);
  const fs::path shorter = checkpoints() / "step-2";
  fs::rename(save(2), shorter);
  EXPECT_EQ(continue_from(shorter, 2).filename(), "step-00000002");
  EXPECT_EQ(newest()->state.step, 2);
}

TEST_F(CheckpointTest, FindsCheckpointsOfARunAFolderOrAPath) {
  save(1);
  const fs::path second = save(2);
  const Warn none = [](const std::string&) {};
  EXPECT_EQ(find_checkpoint(folder_.path(), none).state.step, 2);
  EXPECT_EQ(find_checkpoint(checkpoints(), none).state.step, 2);
  EXPECT_EQ(find_checkpoint(second, none).state.step, 2);
  EXPECT_EQ(find_checkpoint(checkpoints() / "step-00000001/", none).state.step, 1);
  EXPECT_NE(error_of(folder_.path() / "nowhere").find("no such folder"), std::string::npos);
  fs::create_directory(folder_.path() / "empty");
  EXPECT_NE(error_of(folder_.path() / "empty").find("has no checkpoint"), std::string::npos);
}

TEST_F(CheckpointTest, AFailedSaveThrowsAndKeepsOtherCheckpoints) {
  save(1);
  spill(checkpoints() / ".saving-step-00000002", "remains");
  fs::permissions(checkpoints() / ".saving-step-00000002", fs::perms::none);
  save(2);  // works in spite of the remains
  // Fails if there is a file in place of the folder.
  EXPECT_THROW(Checkpoints(checkpoints() / "latest", 3).save({}, snapshot()), Error);
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 2);
}

TEST_F(CheckpointTest, LoadingAnotherModelThrowsConfigError) {
  save(1);
  const auto found = newest();
  ASSERT_TRUE(found);
  model_.parameters.all[0].spec.shape = Shape{3, 2};
  try {
    load_model(*found, model_.arrays());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'fc.weight' has shape [2, 3] instead of [3, 2]"),
              std::string::npos)
        << error.what();
  }
  model_.parameters = SmallModel().parameters;
  model_.parameters.all.pop_back();
  EXPECT_THROW(load_model(*found, model_.arrays()), ConfigError);
  model_.parameters = SmallModel().parameters;
  EXPECT_THROW(load_optimizer(*found, model_.arrays("moment1")), ConfigError);
}

TEST_F(CheckpointTest, ACheckpointOfANewerVersionIsRefusedAndNotSetAside) {
  save(1);
  const fs::path newer = save(2) / "manifest.json";
  nlohmann::json manifest = nlohmann::json::parse(slurp(newer));
  manifest["format"] = 2;
  spill(newer, manifest.dump());
  try {
    newest();
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("manifest.json: was written by a newer Trireme, in "
                        "format 2; this version reads formats up to 1"),
              std::string::npos)
        << error.what();
  }
  manifest["format"] = 0;
  spill(newer, manifest.dump());
  EXPECT_EQ(newest()->state.step, 1);
  EXPECT_NE(warnings_.at(0).find("manifest.json: is damaged: its format is 0"), std::string::npos)
      << warnings_.at(0);
}

// --- The best checkpoint

TEST_F(CheckpointTest, TheBestIsKnownWithoutItsPointer) {
  for (int64_t step : {1, 2, 3}) save(step, 3, /*best=*/step == 2);
  std::vector<std::string> warnings;
  const Warn warn = [&](const std::string& text) { warnings.push_back(text); };
  for (const bool dangling : {false, true}) {
    fs::remove(checkpoints() / "best");
    if (dangling) spill(checkpoints() / "best", "step-00000009\n");
    EXPECT_EQ(find_for_inference(folder_.path(), warn).state.step, 2);
    EXPECT_EQ(find_checkpoint(checkpoints() / "best", warn).state.step, 2);
    fs::remove(checkpoints() / "latest");
    EXPECT_EQ(find_checkpoint(checkpoints() / "latest", warn).state.step, 3);
  }
  EXPECT_TRUE(warnings.empty());

  fs::remove_all(checkpoints() / "step-00000002");
  EXPECT_EQ(find_for_inference(folder_.path(), warn).state.step, 3);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("the best checkpoint, " + checkpoints().string() +
                             "/step-00000002, is missing; step-00000003 is used"),
            std::string::npos)
      << warnings[0];
}

TEST_F(CheckpointTest, AdoptsACheckpointAndTheBest) {
  const fs::path best = save(2, 9, /*best=*/true);
  const fs::path newest_path = save(3);
  const Checkpoints other(folder_.path() / "other", 1);
  EXPECT_EQ(other.adopt(open_checkpoint(newest_path), open_checkpoint(best)),
            folder_.path() / "other/step-00000003");
  for (const char* name : {"step-00000002", "step-00000003"}) {
    const FoundCheckpoint copy = open_checkpoint(folder_.path() / "other" / name);
    EXPECT_EQ(to_json(copy.state), to_json(open_checkpoint(checkpoints() / name).state));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path() / "other"), {}), 2);
}

// --- Checkpoints of a run in progress

TEST_F(CheckpointTest, AnOpenCheckpointCanBeReadAfterItWasDeleted) {
  save(7);
  const auto values = model_.values;
  const auto velocity = model_.velocity;
  const auto found = newest();
  ASSERT_TRUE(found);
  fs::remove_all(checkpoints());
  model_.clear();
  load_model(*found, model_.arrays());
  load_optimizer(*found, model_.arrays());
  EXPECT_EQ(model_.values, values);
  EXPECT_EQ(model_.velocity, velocity);
}

// A file that cannot be read does not mean that it belongs to another model.
TEST_F(CheckpointTest, ReadErrorsAreNotReportedAsAnotherModel) {
  const fs::path path = save(1);
  const auto found = newest();
  ASSERT_TRUE(found);
  fs::resize_file(path / "model.safetensors", fs::file_size(path / "model.safetensors") - 4);
  EXPECT_THROW(load_model(*found, model_.arrays()), DataError);
}

TEST_F(CheckpointTest, IsFoundWhileARunReplacesAndDeletesCheckpoints) {
  save(1, 1, /*best=*/true);
  std::atomic<bool> done{false};
  std::thread run([&] {
    // Each step is saved, and again as the best; then the one before it is deleted.
    for (int64_t step = 2; step <= 20; ++step) {
      save(step, 1);
      save(step, 1, /*best=*/true);
    }
    done = true;
  });
  SmallModel reader;
  int reads = 0;
  const Warn no_warning = [](const std::string& text) { ADD_FAILURE() << text; };
  while (!done) {
    for (const fs::path& path :
         {folder_.path(), checkpoints() / "best", checkpoints() / "latest"}) {
      const FoundCheckpoint found = find_for_inference(path, no_warning);
      load_model(found, reader.arrays());
      EXPECT_EQ(reader.values[16], static_cast<float>(1000 * found.state.step + 16));
      ++reads;
    }
  }
  run.join();
  EXPECT_GT(reads, 0);
}

// --- Missing optimizer state

TEST_F(CheckpointTest, MissingOptimizerStateIsAnErrorIfTheRunHadSome) {
  const std::string rest = R"(
    model { zoo { name: "mlp" } } data { synthetic { shape: [4] } } batch { global: 4 }
    train { epochs: 1 } schedule { learning_rate: 0.1 } )";
  const std::string empty = safetensors_header({});
  config_ = rest + "optimizer { sgd { momentum: 0.9 } }";
  spill(save(1) / "optimizer.safetensors", empty);
  seal(checkpoints() / "step-00000001");
  try {
    load_optimizer(*newest(), model_.arrays());
    FAIL() << "resumed with the velocities set to 0";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("is damaged: it has no tensor 'velocity.fc.weight'"),
              std::string::npos)
        << error.what();
  }
  config_ = rest + "optimizer { sgd {} }";
  spill(save(2) / "optimizer.safetensors", empty);
  seal(checkpoints() / "step-00000002");
  EXPECT_NO_THROW(load_optimizer(*newest(), model_.arrays()));
}

}  // namespace
}  // namespace trireme::train
