// Checkpoints on disks that fill up, fail or hang, and in processes that are killed. The newest
// complete checkpoint must always load, and no rank may wait forever.
#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "core/file.h"
#include "tests/build_tree.h"
#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Four steps an epoch, of well below a millisecond.
constexpr const char* kSmallRun = R"(
model { zoo { name: "mlp" hidden: [16] dropout: 0.1 } }
data { synthetic { shape: [1, 4, 4] count: 64 eval_count: 16 } }
batch { global: 16 }
train { max_steps: 8 eval_every_epochs: 0 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.05 }
checkpoint { every_epochs: 0 keep: 1 timeout_seconds: 5 }
watchdog { timeout_seconds: 3 first_timeout_seconds: 20 }
)";

class CheckpointFaults : public FaultTest {
 protected:
  void SetUp() override { config_ = write_config(kSmallRun); }

  fs::path checkpoints() const { return run_dir() / "checkpoints"; }
  fs::path checkpoint(int64_t step) const {
    return checkpoints() / ("step-0000000" + std::to_string(step));
  }

  static std::vector<std::string> setting(const std::vector<std::string>& assignments) {
    std::vector<std::string> words;
    for (const std::string& assignment : assignments) {
      words.insert(words.end(), {"--set", assignment});
    }
    return words;
  }
  Outcome train_to(int64_t step, const std::vector<std::string>& assignments = {}, int ranks = 0,
                   const std::vector<std::string>& environment = {}) {
    std::vector<std::string> all = {"train.max_steps=" + std::to_string(step)};
    all.insert(all.end(), assignments.begin(), assignments.end());
    return run(train(setting(all)), ranks, environment);
  }
  // Returns the environment for a fault (see disk.cc) on the disk of the checkpoints.
  std::vector<std::string> disk(const std::string& fault, const std::string& only = "") const {
    std::vector<std::string> environment = {
        "LD_PRELOAD=" + (build_tree() / "tests" / "libdisk.so").string(),
        "TRIREME_DISK_FOLDER=" + checkpoints().string(), "TRIREME_DISK_FAULT=" + fault};
    if (!only.empty()) environment.push_back("TRIREME_DISK_ONLY=" + only);
    return environment;
  }

  // Replaces text in state.json and updates the checksum in the manifest.
  static void rewrite_state(const fs::path& checkpoint, const std::string& from,
                            const std::string& to) {
    std::string text = read_file(checkpoint / "state.json");
    ASSERT_NE(text.find(from), std::string::npos) << from << " in " << text;
    text.replace(text.find(from), from.size(), to);
    std::ofstream(checkpoint / "state.json") << text;
    Json manifest = Json::parse(read_file(checkpoint / "manifest.json"));
    const FileDigest digest = digest_of(checkpoint / "state.json");
    manifest["files"]["state.json"] = {{"bytes", digest.bytes},
                                       {"xxh3_64", fmt::format("{:016x}", digest.hash)}};
    std::ofstream(checkpoint / "manifest.json") << manifest.dump();
  }

  // Replaces the run folder by a copy.
  void restore_run(const fs::path& copy) const {
    fs::remove_all(run_dir());
    fs::copy(copy, run_dir(), fs::copy_options::recursive);
  }
  void copy_run(const std::string& name) const {
    fs::copy(run_dir(), scratch_ / name, fs::copy_options::recursive);
  }

  std::optional<train::FoundCheckpoint> newest() const {
    return train::newest_checkpoint(checkpoints(), [](const std::string&) {});
  }
  // Returns the files that training resumes from.
  static std::string contents(const fs::path& path) {
    std::string all;
    for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
      const std::string bytes = read_file(path / name);
      EXPECT_FALSE(bytes.empty()) << path << name;
      all += bytes;
    }
    return all;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(checkpoints())) {
      found.push_back(entry.path().filename());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  Json summary() const { return Json::parse(read_file(run_dir() / "summary.json")); }
  int64_t events(const std::string& kind) const {
    const std::string text = read_file(run_dir() / "metrics.jsonl");
    return std::ssize(lines_with(text, "\"event\":\"" + kind + "\""));
  }

  static void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
    }
  }
  // Expects the run to have ended by itself and in time, with an error that contains these parts,
  // and no rank to have been reported as stuck.
  void expect_failure(const Outcome& outcome, double seconds,
                      const std::vector<std::string>& parts) const {
    EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.error;
    EXPECT_LT(outcome.seconds, seconds);
    EXPECT_EQ(outcome.error.find("stuck"), std::string::npos) << outcome.error;
    expect_parts(outcome.error, parts);
    expect_none_left();
  }
};

// #9: kills the process at each call of a save in turn.
TEST_F(CheckpointFaults, KillAtAnyCallOfASaveLeavesTheOldOrTheNewCheckpoint) {
  ASSERT_EQ(train_to(4).code, 0);
  copy_run("old");
  ASSERT_EQ(train_to(8).code, 0);
  const std::string at_4 = contents(scratch_ / "old/checkpoints/step-00000004");
  const std::string at_8 = contents(checkpoint(8));
  const std::vector<std::string> complete = names();
  ASSERT_EQ(complete, (std::vector<std::string>{"best", "latest", "step-00000008"}));

  int64_t reached = 4;
  int crashes = 0;
  for (int call = 1;; ++call) {
    SCOPED_TRACE(call);
    restore_run(scratch_ / "old");
    const Outcome killed = train_to(8, {}, 0, disk("kill " + std::to_string(call)));
    if (killed.code == 0) break;
    ASSERT_EQ(killed.code, 128 + SIGKILL) << killed.error;
    ++crashes;
    const auto found = newest();
    ASSERT_TRUE(found);
    const int64_t step = found->state.step;
    EXPECT_EQ(contents(found->path), step == 4 ? at_4 : at_8);
    EXPECT_GE(step, reached);  // once a call has completed the new checkpoint, it stays complete
    reached = step;

    const Outcome again = train_to(8);
    ASSERT_EQ(again.code, 0) << again.error;
    EXPECT_EQ(contents(checkpoint(8)), at_8);
    EXPECT_EQ(read_file(checkpoints() / "latest"), "step-00000008\n");
    // A run with nothing left to do neither saves nor deletes checkpoints.
    if (step == 4) {
      EXPECT_EQ(names(), complete);
    }
  }
  EXPECT_EQ(reached, 8);
  EXPECT_GT(crashes, 25);  // four files, two folders, a rename, two pointers, deleting the old one
}

// #9 for power failures, which lose everything that is not synced; a kill does not test this.
TEST_F(CheckpointFaults, SyncsEverythingBeforeRenaming) {
  const std::string log = (scratch_ / "calls").string();
  std::vector<std::string> environment = disk("");
  environment.insert(environment.end(), {"TRIREME_DISK_FOLDER=" + scratch_.path().string(),
                                         "TRIREME_DISK_LOG=" + log});
  ASSERT_EQ(train_to(8, {}, 0, environment).code, 0);
  const std::string saving = (checkpoints() / ".saving-step-00000008").string();
  std::set<std::string> unsynced;  // files with contents, and folders with names, not yet synced
  std::vector<std::string> renamed;
  std::istringstream calls(read_file(log));
  for (std::string kind, path; calls >> kind >> path;) {
    const std::string folder = fs::path(path).parent_path().string();
    const bool about_checkpoints =
        path.starts_with(checkpoints().string()) || path == run_dir() || path == scratch_.path();
    if (!about_checkpoints) continue;
    if (kind == "write") unsynced.insert(path);
    if (kind == "open" || kind == "mkdir") unsynced.insert(folder);
    if (kind == "fsync") unsynced.erase(path);
    if (kind != "rename") continue;
    renamed.push_back(fs::path(path).filename());
    // The folder itself is synced after the rename.
    unsynced.erase(folder);
    EXPECT_TRUE(unsynced.empty()) << path
                                  << " is renamed before this is synced: " << *unsynced.begin();
    unsynced.insert(folder);
  }
  EXPECT_TRUE(unsynced.empty());
  EXPECT_EQ(renamed, (std::vector<std::string>{"step-00000008", "best", "latest"}));
  EXPECT_NE(read_file(log).find("fsync " + saving + "/model.safetensors"), std::string::npos);
}

// #10
TEST_F(CheckpointFaults, NamesAndSkipsDamagedCheckpoints) {
  const std::vector<std::string> two = {"checkpoint.keep=2"};
  ASSERT_EQ(train_to(4, two).code, 0);
  ASSERT_EQ(train_to(8, two).code, 0);
  copy_run("good");
  const std::string at_8 = contents(checkpoint(8));
  const auto truncate = [](const fs::path& file) {
    fs::resize_file(file, fs::file_size(file) / 2);
  };
  const auto flip = [](const fs::path& file) {
    std::string bytes = read_file(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::ofstream(file, std::ios::binary) << bytes;
  };
  const auto remove = [](const fs::path& file) { fs::remove(file); };
  const std::vector<std::pair<std::string, std::function<void(const fs::path&)>>> damages = {
      {"truncated", truncate}, {"flipped", flip}, {"missing", remove}};
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    for (const auto& [kind, damage] : damages) {
      SCOPED_TRACE(kind + " " + name);
      restore_run(scratch_ / "good");
      damage(checkpoint(8) / name);
      // A flipped bit in a checksum of the manifest looks like damage of the file it belongs to.
      const bool vague = name == std::string("manifest.json") && kind == "flipped";
      const std::string file = (checkpoint(8) / (vague ? "" : name)).string();

      std::vector<std::string> explicitly = train(setting({"train.max_steps=8"}));
      explicitly.insert(explicitly.end(), {"--resume", checkpoint(8).string()});
      const Outcome refused = run(explicitly);
      EXPECT_EQ(refused.code, 3) << refused.error;
      expect_parts(refused.error, {file});

      const Outcome outcome = train_to(8, two);
      EXPECT_EQ(outcome.code, 0) << outcome.error;
      expect_parts(outcome.out, {"warning: checkpoint step-00000008 skipped: " + file,
                                 "resumed from " + checkpoint(4).string()});
      EXPECT_EQ(contents(checkpoint(8)), at_8);
    }
  }
}

TEST_F(CheckpointFaults, SkipsImpossibleStates) {
  const std::vector<std::string> two = {"checkpoint.keep=2"};
  ASSERT_EQ(train_to(4, two).code, 0);
  ASSERT_EQ(train_to(8, two).code, 0);
  copy_run("good");
  const std::string at_8 = contents(checkpoint(8));
  for (const auto& [from, to, message] :
       {std::tuple("\n  \"step\": 8", "\n  \"step\": 9",
                   "step is 9, but the folder is named step-00000008"),
        std::tuple("\"epoch\": 2", "\"epoch\": 9223372036854775807",
                   "epoch is 9223372036854775807, which is not an integer in [0, 8]"),
        std::tuple("\"ranks\": 1",
                   "\"loss_scale\": {\"good_steps\": 0, \"scale\": 1.0, \"skipped\": "
                   "-5}, \"ranks\": 1",
                   "loss_scale.skipped is -5, which is not an integer in [0, 8]")}) {
    SCOPED_TRACE(message);
    restore_run(scratch_ / "good");
    rewrite_state(checkpoint(8), from, to);
    const Outcome outcome = train_to(8, two);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    expect_parts(outcome.out,
                 {"warning: checkpoint step-00000008 skipped: " +
                      (checkpoint(8) / "state.json").string() + ": is damaged: " + message,
                  "resumed from " + checkpoint(4).string()});
    EXPECT_EQ(contents(checkpoint(8)), at_8);
  }
}

// Early versions did not save the properties of the data.
TEST_F(CheckpointFaults, WarnsIfAnOldCheckpointDoesNotDescribeItsData) {
  ASSERT_EQ(train_to(4).code, 0);
  Json state = Json::parse(read_file(checkpoint(4) / "state.json"));
  const std::string before = state.dump(2);
  state.erase("data");
  rewrite_state(checkpoint(4), before, state.dump(2));
  const Outcome outcome = train_to(8);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  expect_parts(outcome.out,
               {"warning: " + checkpoint(4).string() +
                " does not record its data, so changes of the data cannot be detected"});
  const Outcome next = train_to(12);
  EXPECT_EQ(next.code, 0) << next.error;
  EXPECT_EQ(next.out.find("which data"), std::string::npos) << next.out;
}

// The command that began a run from a checkpoint of another one also continues it, so that it can
// be restarted.
TEST_F(CheckpointFaults, ResumesFromAnotherRunOnlyWhileTheFolderHasNoCheckpoints) {
  ASSERT_EQ(train_to(4).code, 0);
  fs::rename(run_dir(), scratch_ / "other");
  const auto from_other = [&](int64_t step) {
    std::vector<std::string> words = train(setting({"train.max_steps=" + std::to_string(step)}));
    words.insert(words.end(), {"--resume", (scratch_ / "other").string()});
    return run(words, 2);
  };
  const std::string at_4 = contents(scratch_ / "other/checkpoints/step-00000004");
  const Outcome begun = from_other(8);
  ASSERT_EQ(begun.code, 0) << begun.error;
  expect_parts(begun.out,
               {"resumed from " + (scratch_ / "other/checkpoints/step-00000004").string()});
  EXPECT_EQ(names(), (std::vector<std::string>{"best", "latest", "step-00000008"}));
  EXPECT_EQ(contents(scratch_ / "other/checkpoints/step-00000004"), at_4);

  const Outcome continued = from_other(9);
  ASSERT_EQ(continued.code, 0) << continued.error;
  expect_parts(continued.out,
               {run_dir().string() + " has checkpoints: the run goes on from the newest",
                "resumed from " + checkpoint(8).string()});
  EXPECT_EQ(newest()->state.step, 9);
}

TEST_F(CheckpointFaults, SavesAndDeletesEvenIfLatestCannotBeWritten) {
  ASSERT_EQ(train_to(4).code, 0);
  fs::remove(checkpoints() / "latest");
  fs::create_directories(checkpoints() / "latest");
  const Outcome outcome = train_to(40, {"checkpoint.every_steps=8", "checkpoint.keep_best=false"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  expect_parts(outcome.out,
               {"step-00000008 is saved, but 'latest' cannot be written: " + checkpoints().string(),
                "Is a directory"});
  EXPECT_EQ(outcome.out.find("no checkpoint"), std::string::npos) << outcome.out;
  EXPECT_EQ(newest()->state.step, 40);
  EXPECT_LE(names().size(), 4u);  // best, its checkpoint, latest, the newest
}

// #11: the run continues without checkpoints and fails at its end.
TEST_F(CheckpointFaults, WarnsOfAFullOrFailingDisk) {
  ASSERT_EQ(train_to(4).code, 0);
  copy_run("old");
  const std::string at_4 = contents(checkpoint(4));
  for (const auto& [fault, cause] :
       {std::pair("enospc 1", "No space left on device"), std::pair("eio 1", "Input/output error"),
        std::pair("eio 9", "Input/output error")}) {
    SCOPED_TRACE(fault);
    restore_run(scratch_ / "old");
    const Outcome outcome = train_to(200, {"checkpoint.every_steps=20"}, 2, disk(fault));
    expect_parts(outcome.out, {"warning: no checkpoint at step 20: ", cause,
                               "the newest is " + checkpoint(4).string(), "training continues"});
    expect_failure(outcome, 20,
                   {"no checkpoint at step 200: " + checkpoints().string(), cause,
                    "the newest is " + checkpoint(4).string()});
    EXPECT_EQ(lines_with(outcome.out, "warning: no checkpoint at step").size(), 1u) << outcome.out;
    EXPECT_EQ(contents(checkpoint(4)), at_4);
    EXPECT_EQ(newest()->state.step, 4);
  }
}

TEST_F(CheckpointFaults, SavesAgainOnceTheDiskHasRecovered) {
  ASSERT_EQ(train_to(4).code, 0);
  const Outcome outcome =
      train_to(200, {"checkpoint.every_steps=20"}, 2, disk("enospc 1 1", "write"));
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  expect_parts(outcome.out, {"warning: no checkpoint at step 20: ", "No space left"});
  EXPECT_EQ(newest()->state.step, 200);
}

// A write may accept fewer bytes than it was given.
TEST_F(CheckpointFaults, ShortWritesAreContinued) {
  ASSERT_EQ(train_to(8).code, 0);
  const std::string complete = contents(checkpoint(8));
  fs::remove_all(run_dir());
  ASSERT_EQ(train_to(8, {}, 0, disk("short 1")).code, 0);
  ASSERT_TRUE(newest());
  EXPECT_EQ(contents(checkpoint(8)), complete);
}

TEST_F(CheckpointFaults, EndsTheRunIfOnErrorIsStop) {
  ASSERT_EQ(train_to(4).code, 0);
  copy_run("old");
  const std::vector<std::string> stop = {"checkpoint.every_steps=20", "checkpoint.on_error=STOP",
                                         "checkpoint.timeout_seconds=1"};
  for (const auto& [fault, cause] :
       {std::pair("enospc 1", "No space left on device"), std::pair("hang 9", "after 1 s")}) {
    SCOPED_TRACE(fault);
    restore_run(scratch_ / "old");
    const Outcome outcome = train_to(10000000, stop, 2, disk(fault));
    expect_failure(outcome, 15,
                   {"no checkpoint at step ", cause, "the newest is " + checkpoint(4).string()});
    EXPECT_EQ(newest()->state.step, 4);
  }
}

// The peers wait for rank 0 longer than the timeout of the watchdog.
TEST_F(CheckpointFaults, EndsTheRunIfTheDiskHangsAtItsEnd) {
  ASSERT_EQ(train_to(4).code, 0);
  const std::string at_4 = contents(checkpoint(4));
  const Outcome outcome = train_to(40, {}, 2, disk("hang 5"));
  EXPECT_GT(outcome.seconds, 5);
  expect_failure(outcome, 20,
                 {"no checkpoint at step 40: it is still being written after 5 s",
                  "the newest is " + checkpoint(4).string()});
  EXPECT_EQ(contents(checkpoint(4)), at_4);
}

// Training continues while the save hangs; saves that come due meanwhile are skipped.
TEST_F(CheckpointFaults, WarnsOfADiskThatHangs) {
  ASSERT_EQ(train_to(4).code, 0);
  std::vector<std::string> environment = disk("hang 5");
  environment.push_back("TRIREME_INJECT=step sleep seconds=0.01 times=0");
  const Outcome outcome =
      train_to(204, {"checkpoint.every_steps=10", "checkpoint.timeout_seconds=1"}, 2, environment);
  expect_parts(outcome.out,
               {": the one of step 10 is still being written after ",
                "warning: no checkpoint at step 10: it is still being written after 1 s"});
  EXPECT_EQ(lines_with(outcome.out, "still being written").size(), 2u) << outcome.out;
  expect_failure(outcome, 20, {"the newest is " + checkpoint(4).string()});
  EXPECT_EQ(losses_of(run_dir()).size(), 204u);
}

// #12: two ranks save in every step and are killed during some save.
TEST_F(CheckpointFaults, KillDuringABackgroundSaveLeavesTheOldOrTheNewCheckpoint) {
  const std::vector<std::string> often = {"checkpoint.every_steps=1"};
  const std::string slowly = "TRIREME_INJECT=step sleep seconds=0.02 times=0";
  ASSERT_EQ(train_to(40, often, 2).code, 0);
  const std::string at_40 = contents(checkpoints() / "step-00000040");
  const std::vector<std::string> losses = losses_of(run_dir());
  for (const int call : {60, 83, 106}) {
    SCOPED_TRACE(call);
    fs::remove_all(run_dir());
    std::vector<std::string> environment = disk("kill " + std::to_string(call));
    environment.push_back(slowly);
    const Outcome killed = train_to(40, often, 2, environment);
    EXPECT_NE(killed.code, 0);
    expect_none_left();
    ASSERT_TRUE(newest());
    EXPECT_LT(newest()->state.step, 40);
    const Outcome again = train_to(40, often, 2);
    ASSERT_EQ(again.code, 0) << again.error;
    EXPECT_EQ(contents(checkpoints() / "step-00000040"), at_40);
    EXPECT_EQ(losses_of(run_dir()), losses);
  }
}

// #12: saves come due faster than the disk can write them.
TEST_F(CheckpointFaults, SkipsSavesOnASlowDiskWithBoundedMemory) {
  std::string large = kSmallRun;
  config_ = scratch_.write("large.txtpb", large.replace(large.find("[16]"), 4, "[1024, 1024]"));
  ASSERT_EQ(train_to(60).code, 0);
  const auto once = summary()["peak_memory_bytes"].get<int64_t>();
  fs::remove_all(run_dir());
  const Outcome outcome = train_to(60, {"checkpoint.every_steps=1"}, 0, disk("slow 1 5"));
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto skipped = summary()["saves_left_out"].get<int64_t>();
  EXPECT_GT(skipped, 0);
  expect_parts(outcome.out, {std::to_string(skipped) + " checkpoints skipped: due while"});
  EXPECT_EQ(events("checkpoint") + skipped, 60);
  // Both runs hold one snapshot of parameters and momentum; a second would exceed this limit.
  const auto bytes =
      static_cast<int64_t>(fs::file_size(checkpoints() / "step-00000060" / "model.safetensors"));
  EXPECT_GT(bytes, 4 << 20);
#ifndef __SANITIZE_THREAD__  // which needs several bytes of its own for each byte in use
  EXPECT_LT(summary()["peak_memory_bytes"].get<int64_t>(), once + bytes);
#endif
}

// evaluation.json and summary.json take longer than the watchdog's limit.
TEST_F(CheckpointFaults, ASlowDiskDoesNotEndARunAtItsEnd) {
  std::vector<std::string> slow = disk("slow 1 700", "fsync");
  slow[1] = "TRIREME_DISK_FOLDER=" + run_dir().string();
  const Outcome outcome =
      train_to(8, {"watchdog.timeout_seconds=1", "checkpoint.timeout_seconds=30"}, 2, slow);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(read_file(checkpoints() / "latest"), "step-00000008\n");
  EXPECT_TRUE(fs::exists(run_dir() / "evaluation.json"));
  EXPECT_EQ(summary()["status"], "done");
}

TEST_F(CheckpointFaults, RefusesASecondRunInTheSameFolder) {
  Program first(train(setting({"train.max_steps=10000000", "checkpoint.every_steps=20"})), 2);
  ASSERT_TRUE(wait_for(checkpoints() / "latest", 20));
  const Outcome second = train_to(8);
  EXPECT_EQ(second.code, 1);
  expect_parts(second.error, {"is in use by process ", " on "});
  EXPECT_TRUE(first.running());
  for (const pid_t rank : first.children()) kill(rank, SIGKILL);
  first.wait();
  const int64_t reached = newest()->state.step;
  EXPECT_EQ(train_to(reached + 8, {}, 2).code, 0);  // the lock ended with its process
}

// The state of early stopping is in the checkpoint: a run that was killed and resumed ends at the
// same step and with the same checkpoint.
TEST_F(CheckpointFaults, EarlyStoppingResumesAfterAKill) {
  const std::vector<std::string> noise = {
      "data.synthetic.noise=1",     "train.eval_every_steps=5", "checkpoint.every_steps=4",
      "schedule.learning_rate=0.3", "checkpoint.keep=1000",     "train.early_stopping.patience=4"};
  ASSERT_EQ(train_to(2000, noise, 2).code, 0);
  const Json straight = summary();
  ASSERT_EQ(straight["ended_by"], "early_stopping");
  const int64_t last = straight["steps"];
  const std::string path = fmt::format("step-{:08}", last);
  const std::string saved = contents(checkpoints() / path);
  ASSERT_GT(last, 15);
  for (const int64_t step : {last - 13, last - 6, last - 1}) {
    fs::remove_all(run_dir());
    const std::string kill = fmt::format("TRIREME_INJECT=forward kill rank=1 step={}", step);
    EXPECT_NE(train_to(2000, noise, 2, {kill}).code, 0) << step;
    const Outcome outcome = train_to(2000, noise, 2);
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    expect_parts(outcome.out, {"resumed from ", "stopped early: loss has not been below "});
    EXPECT_EQ(contents(checkpoints() / path), saved) << step;
    for (const char* field : {"steps", "ended_by", "reason", "best_step", "best_eval_loss"}) {
      EXPECT_EQ(summary()[field], straight[field]) << field << ", killed in step " << step;
    }
  }
  // eval and export use the best checkpoint, not the last.
  const Outcome tested = run({"eval", run_dir().string(), "--json"});
  ASSERT_EQ(tested.code, 0) << tested.error;
  EXPECT_EQ(Json::parse(tested.out)["step"], straight["best_step"]);
  const fs::path file = scratch_ / "best.onnx";
  ASSERT_EQ(run({"export", run_dir().string(), file.string()}).code, 0);
  const std::string step =
      fmt::format("step\x12{}{}", static_cast<char>(straight["best_step"].dump().size()),
                  straight["best_step"].dump());
  EXPECT_NE(read_file(file).find(step), std::string::npos) << "metadata of the model";
}

TEST_F(CheckpointFaults, RetainsAndEvaluatesTheBestCheckpoint) {
  const Outcome outcome = train_to(80, {"train.eval_every_steps=8", "schedule.learning_rate=0.2"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto found = train::find_checkpoint(checkpoints() / "best", [](const std::string&) {});
  ASSERT_TRUE(found.state.best);
  EXPECT_EQ(found.state.best->step, found.state.step);
  double best = 0;
  Json first;
  for (const std::string& line :
       lines_with(read_file(run_dir() / "metrics.jsonl"), "\"event\":\"eval\"")) {
    const Json event = Json::parse(line);
    if (event["eval_accuracy"].get<double>() > best) first = event;
    best = std::max(best, event["eval_accuracy"].get<double>());
  }
  EXPECT_EQ(found.state.best->value, best);
  EXPECT_EQ(found.state.step, first["step"]);  // the first of several equally good ones
  EXPECT_LE(names().size(), 4u);               // best, latest, and the one or two they refer to
  const Outcome tested = run({"eval", run_dir().string(), "--best", "--json"});
  ASSERT_EQ(tested.code, 0) << tested.error;
  EXPECT_NEAR(Json::parse(tested.out)["eval_accuracy"].get<double>(), best, 1e-6);
}

}  // namespace
}  // namespace trireme::testing
