// Runs that are stopped, killed, resumed or run on another number of ranks end like an
// uninterrupted run.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// 12 epochs of 13 steps, with a short last batch per epoch. A step takes a few milliseconds.
constexpr const char* kConfig = R"(
model { zoo { name: "mlp" hidden: [1024, 1024] dropout: 0.1 } }
data { synthetic { shape: [1, 24, 24] count: 400 eval_count: 50 } }
batch { global: 32 }
train { epochs: 12 eval_every_epochs: 0 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.01 cosine {} }
checkpoint { every_steps: 5 every_epochs: 0 }
checks { parameter_checksum_every_steps: 1 }
)";
constexpr int64_t kSteps = 12 * 13;

class Runs : public ::testing::Test {
 protected:
  void SetUp() override { config_ = scratch_.write("run.txtpb", kConfig); }

  std::vector<std::string> train(const std::string& name,
                                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train", config_, "--run-dir", folder(name).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  fs::path folder(const std::string& name) const { return scratch_ / name; }

  // Runs without interruption and returns the losses.
  std::vector<std::string> uninterrupted(const std::string& name, int ranks,
                                         const std::vector<std::string>& more = {}) {
    const Outcome outcome = run(train(name, more), ranks);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return losses_of(folder(name));
  }

  struct Reference {
    std::vector<std::string> losses;
    std::string checksum;
  };
  // Returns the results of an uninterrupted run on two ranks, which is run once for all tests.
  static const Reference& reference() {
    static const Reference once = [] {
      const Scratch scratch;
      const std::string folder = (scratch / "run").string();
      const Outcome outcome =
          run({"train", scratch.write("run.txtpb", kConfig), "--run-dir", folder}, 2);
      EXPECT_EQ(outcome.code, 0) << outcome.error;
      return Reference{losses_of(folder), checksum_of(folder)};
    }();
    return once;
  }

  void expect_reference(const std::string& name) const {
    EXPECT_EQ(losses_of(folder(name)), reference().losses);
    EXPECT_EQ(checksum_of(folder(name)), reference().checksum);
  }

  // The checksum of all parameters after the last step.
  static std::string checksum_of(const fs::path& folder) {
    std::ifstream file(folder / "metrics.jsonl");
    std::string last;
    for (std::string line; std::getline(file, line);) {
      const Json record = Json::parse(line);
      if (record.contains("parameter_checksum")) last = record["parameter_checksum"];
    }
    return last;
  }

  // Waits until the run has saved a checkpoint, in the middle of an epoch.
  bool wait_for_checkpoint(const std::string& name) const {
    for (int i = 0; i < 20000; ++i) {
      std::error_code none;
      const fs::directory_iterator entries(folder(name) / "checkpoints", none);
      if (!none && std::distance(begin(entries), end(entries)) >= 2) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  static void expect_close(const std::vector<std::string>& got,
                           const std::vector<std::string>& wanted, size_t count) {
    ASSERT_GE(got.size(), count);
    ASSERT_GE(wanted.size(), count);
    for (size_t i = 0; i < count; ++i) {
      const double want = std::stod(wanted[i]);
      EXPECT_NEAR(std::stod(got[i]), want, 1e-5 * std::abs(want)) << "step " << i + 1;
    }
  }

  Scratch scratch_;
  std::string config_;
};

TEST_F(Runs, AreBitwiseReproducible) {
  EXPECT_EQ(reference().losses.size(), static_cast<size_t>(kSteps));
  EXPECT_FALSE(reference().checksum.empty());
  uninterrupted("again", 2);
  expect_reference("again");
}

TEST_F(Runs, LossesDoNotDependOnTheNumberOfRanks) {
  const std::vector<std::string> fifty = {"--set", "train.max_steps=50"};
  const auto alone = uninterrupted("alone", 0, fifty);
  ASSERT_EQ(alone.size(), 50u);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    SCOPED_TRACE(ranks);
    expect_close(uninterrupted("ranks" + std::to_string(ranks), ranks, fifty), alone, 50);
  }
}

// mpirun forwards SIGUSR1 to every rank.
TEST_F(Runs, SaveOnSignalAndResume) {
  Program program(train("run"), 2);
  ASSERT_TRUE(wait_for_checkpoint("run"));
  program.signal(SIGUSR1);
  const Outcome stopped = program.wait();
  EXPECT_EQ(stopped.code, 75) << stopped.out << stopped.error;
  EXPECT_NE(stopped.out.find("stopped by a signal and saved"), std::string::npos) << stopped.out;
  EXPECT_LT(losses_of(folder("run")).size(), static_cast<size_t>(kSteps));

  const Outcome finished = run(train("run", {"--resume", "auto"}), 2);
  EXPECT_EQ(finished.code, 0) << finished.error;
  expect_reference("run");
}

// --resume never refuses a folder with checkpoints, and a path in it would go back to it.
TEST_F(Runs, TheAdviceAfterAStopWorks) {
  std::vector<std::string> command = train("run", {"--resume", "never"});
  Program program(command, 0);
  ASSERT_TRUE(wait_for_checkpoint("run"));
  program.signal(SIGUSR1);
  const Outcome stopped = program.wait();
  EXPECT_EQ(stopped.code, 75) << stopped.out << stopped.error;
  const std::string advice = "--run-dir " + folder("run").string() + " --resume auto\n";
  EXPECT_NE(stopped.out.find(advice), std::string::npos) << stopped.out;
  command.back() = "auto";
  const Outcome finished = run(command, 0);
  EXPECT_EQ(finished.code, 0) << finished.error;
  EXPECT_NE(finished.out.find("resumed from "), std::string::npos) << finished.out;
}

// mpirun forwards SIGTERM after a second, kills the ranks after another, and exits with its own
// code. How far the run gets is not defined, so only the resumed run is checked.
TEST_F(Runs, ResumeAfterSigtermToMpirun) {
  Program program(train("run"), 2);
  ASSERT_TRUE(wait_for_checkpoint("run"));
  program.signal(SIGTERM);
  program.wait();
  const Outcome finished = run(train("run", {"--resume", "auto"}), 2);
  EXPECT_EQ(finished.code, 0) << finished.error;
  expect_reference("run");
}

// Slurm sends the signal to each rank.
TEST_F(Runs, SaveOnSigtermToEveryRank) {
  Program program(train("run"), 2);
  ASSERT_TRUE(wait_for_checkpoint("run"));
  for (pid_t rank : program.children()) kill(rank, SIGTERM);
  EXPECT_EQ(program.wait().code, 75);
}

TEST_F(Runs, SaveOnSigintWithoutALauncher) {
  Program program(train("run"), 0);
  ASSERT_TRUE(wait_for_checkpoint("run"));
  program.signal(SIGINT);
  EXPECT_EQ(program.wait().code, 75);
  const Outcome finished = run(train("run"), 0);
  EXPECT_EQ(finished.code, 0) << finished.error;
  EXPECT_EQ(losses_of(folder("run")).size(), static_cast<size_t>(kSteps));
}

TEST_F(Runs, ResumeBitwiseAfterSigkillWithinAnEpoch) {
  Program program(train("run"), 2);
  ASSERT_TRUE(wait_for_checkpoint("run"));
  const std::vector<pid_t> ranks = program.children();
  ASSERT_EQ(ranks.size(), 2u);
  for (pid_t rank : ranks) kill(rank, SIGKILL);
  EXPECT_EQ(program.wait().code, 128 + SIGKILL);

  const Outcome finished = run(train("run"), 2);
  EXPECT_EQ(finished.code, 0) << finished.error;
  expect_reference("run");
}

TEST_F(Runs, ResumeOnAnotherNumberOfRanks) {
  Program program(train("run"), 2);
  ASSERT_TRUE(wait_for_checkpoint("run"));
  program.signal(SIGUSR1);
  EXPECT_EQ(program.wait().code, 75);
  const Outcome finished = run(train("run"), 3);
  EXPECT_EQ(finished.code, 0) << finished.error;
  expect_close(losses_of(folder("run")), reference().losses, kSteps);
}

size_t times_in(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

std::vector<std::string> set(const std::vector<std::string>& assignments) {
  std::vector<std::string> words;
  for (const std::string& assignment : assignments) {
    words.insert(words.end(), {"--set", assignment});
  }
  return words;
}

TEST_F(Runs, ChangedFieldsAreReportedOnceOnStderr) {
  uninterrupted("run", 0, set({"train.max_steps=6"}));
  const Outcome same = run(train("run", set({"train.max_steps=6"})), 2);
  EXPECT_EQ(same.error.find("warning"), std::string::npos) << same.error;

  const Outcome changed =
      run(train("run", set({"train.max_steps=9", "batch.global=50", "seed=7", "train.threads=1",
                            "optimizer.weight_decay=0.5", "checkpoint.keep=2"})),
          2);
  EXPECT_EQ(changed.code, 0) << changed.error;
  for (const char* line :
       {"seed: 1 -> 7\n", "batch.global: 32 -> 50\n", "train.max_steps: 6 -> 9\n",
        "optimizer.weight_decay: 0 -> 0.5\n", "checkpoints/step-00000006:\n"}) {
    EXPECT_EQ(times_in(changed.error, line), 1u) << line << " in\n" << changed.error;
  }
  for (const char* free : {"threads", "keep"}) {
    EXPECT_EQ(times_in(changed.error, free), 0u) << changed.error;
  }
  EXPECT_NE(read_file(folder("run") / "log/rank-0.log").find("seed: 1 -> 7"), std::string::npos);
  EXPECT_EQ(losses_of(folder("run")).size(), 9u);
}

// The configuration is compared with that of the checkpoint. config.txtpb may be newer, if the
// latest start did not reach a checkpoint, and the checkpoint may belong to another run.
TEST_F(Runs, ChangesAreRelativeToTheCheckpoint) {
  uninterrupted("first", 0, set({"train.max_steps=6", "checkpoint.every_steps=6"}));
  const fs::path checkpoint = folder("first") / "checkpoints/step-00000006";
  uninterrupted("first", 0, set({"train.max_steps=7", "seed=7"}));
  std::vector<std::string> words = set({"train.max_steps=8", "seed=2"});
  words.insert(words.end(), {"--resume", checkpoint.string()});
  const Outcome other = run(train("second", words));
  EXPECT_EQ(other.code, 0) << other.error;
  EXPECT_EQ(times_in(other.error, "  seed: 1 -> 2\n"), 1u) << other.error;
}

TEST_F(Runs, AnotherNetworkOrOptimizerIsAnErrorThatChangesNothing) {
  uninterrupted("run", 0, set({"train.max_steps=6"}));
  const std::string before = read_file(folder("run") / "config.txtpb");
  const Outcome refused = run(train("run", set({"model.zoo.hidden=512", "optimizer=adam"})), 2);
  EXPECT_EQ(refused.code, 2) << refused.error;
  for (const char* line : {"--set: model.zoo.hidden: [1024, 1024] -> [512]\n",
                           "--set: optimizer: sgd -> adam\n", "--init-from "}) {
    EXPECT_EQ(times_in(refused.error, line), 1u) << line << " in\n" << refused.error;
  }
  EXPECT_EQ(read_file(folder("run") / "config.txtpb"), before);
  EXPECT_EQ(losses_of(folder("run")).size(), 6u);
}

TEST_F(Runs, EvalReproducesTheResultsOfTheRun) {
  uninterrupted("run", 2);
  const Json summary = Json::parse(read_file(folder("run") / "summary.json"));
  const Outcome outcome = run({"eval", folder("run").string(), "--json"}, 2);
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const Json result = Json::parse(outcome.out);
  EXPECT_EQ(result["samples"], 50);
  EXPECT_NEAR(result["eval_accuracy"].get<double>(), summary["eval_accuracy"].get<double>(), 1e-6);
  EXPECT_NEAR(result["eval_loss"].get<double>(), summary["eval_loss"].get<double>(), 1e-5);
}

TEST_F(Runs, FinishedRunIsNotOverwritten) {
  uninterrupted("run", 0, {"--set", "train.max_steps=12"});
  const Outcome refused = run(train("run", {"--set", "train.max_steps=12", "--resume", "never"}));
  EXPECT_EQ(refused.code, 2) << refused.error;
}

}  // namespace
}  // namespace trireme::testing
