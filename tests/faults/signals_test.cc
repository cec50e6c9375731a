// Runs that receive a signal to stop, in any phase. All ranks must save at the same step and exit
// with 75, and the resumed run must equal an uninterrupted one.
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// 12 epochs of 13 steps in micro-batches; the last batch of an epoch is smaller.
constexpr const char* kRun = R"(
model { zoo { name: "mlp" hidden: [64, 64] dropout: 0.1 } }
data { synthetic { shape: [1, 8, 8] count: 400 eval_count: 400 } }
batch { global: 32 micro: 8 }
train { epochs: 12 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.01 cosine {} }
checkpoint { every_steps: 5 every_epochs: 0 }
checks { parameter_checksum_every_steps: 1 }
)";
constexpr int64_t kSteps = 12 * 13;
constexpr int kResumable = 75;

enum class Target { kOneRank, kAllRanks, kLauncher };

// A fault point at which the ranks are held up until the signals are sent. `step` is -1 before the
// first step.
struct Place {
  std::string name;
  int64_t step = -1;
  Target target = Target::kOneRank;
  std::vector<int> signals = {SIGTERM, SIGTERM};
};

class Signals : public FaultTest {
 protected:
  void SetUp() override { config_ = write_config(kRun); }

  // Starts a run and returns it once the ranks `held` have reached `place`, where `fault` delays
  // them.
  std::unique_ptr<Program> held_up(const std::string& place, const std::string& fault,
                                   const std::vector<int>& held, int ranks,
                                   const std::vector<std::string>& more = {}) {
    std::string inject = "TRIREME_INJECT=";
    std::vector<fs::path> reached;
    for (const int rank : held) {
      reached.push_back(scratch_ / ("reached-" + std::to_string(++held_up_)));
      inject += place + " sleep " + fault + " rank=" + std::to_string(rank) +
                " once=" + reached.back().string() + ";";
    }
    auto program = std::make_unique<Program>(train(more), ranks, std::vector{inject});
    for (const fs::path& file : reached) EXPECT_TRUE(wait_for(file, 30)) << place;
    return program;
  }

  static void send(const Program& program, Target target, const std::vector<int>& signals) {
    for (const int signal : signals) {
      if (target == Target::kLauncher) {
        program.signal(signal);
        continue;
      }
      std::vector<pid_t> ranks = program.children();
      ASSERT_EQ(ranks.size(), 2u);
      if (target == Target::kOneRank) ranks.resize(1);
      for (const pid_t rank : ranks) kill(rank, signal);
    }
  }

  // Returns the last step at which the rank stopped, according to its log.
  int64_t stopped_at(int rank) const {
    const std::string log =
        read_file(run_dir() / "log" / ("rank-" + std::to_string(rank) + ".log"));
    const std::regex line("stopped: \\d+ epochs?, (\\d+) steps?");
    int64_t step = -1;
    for (std::sregex_iterator it(log.begin(), log.end(), line), end; it != end; ++it) {
      step = std::stoll((*it)[1]);
    }
    return step;
  }

  int64_t newest_step() const {
    const std::string latest = read_file(run_dir() / "checkpoints" / "latest");
    const size_t digits = latest.find_first_of("0123456789");
    return digits == std::string::npos ? 0 : std::stoll(latest.substr(digits));
  }

  // The values that must be equal for two runs to be equal: the losses of all steps, the checksum
  // of the parameters after each step, and the evaluations.
  struct Records {
    std::vector<std::string> losses;
    std::vector<std::string> checksums;
    std::vector<Json> evaluations;
  };
  Records records() const {
    Records records{losses_of(run_dir()), {}, {}};
    std::ifstream file(run_dir() / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json record = Json::parse(line);
      if (record["event"] == "step") records.checksums.push_back(record["parameter_checksum"]);
      if (record["event"] == "eval") {
        records.evaluations.push_back(
            {record["step"], record["eval_loss"], record["eval_accuracy"]});
      }
    }
    return records;
  }

  int held_up_ = 0;
};

// Stops one run once in each phase.
TEST_F(Signals, StopInAnyPhaseWithoutChangingTheResult) {
  const std::vector<Place> places = {
      {"before_mpi"},
      {"before_mpi", -1, Target::kLauncher, {SIGUSR1, SIGUSR1}},
      {"open_data"},
      {"step", 7},
      {"step", 20, Target::kLauncher, {SIGUSR1, SIGUSR1}},
      {"forward", 31, Target::kAllRanks, {SIGTERM, SIGUSR1, SIGINT, SIGHUP}},
      {"update", 43, Target::kOneRank, {SIGUSR1}},
      {"collective", 56, Target::kOneRank, {SIGHUP, SIGTERM}},
      {"checkpoint", 69, Target::kAllRanks, {SIGUSR1, SIGUSR1}},
      {"evaluation", 90, Target::kOneRank, {SIGTERM, SIGUSR1}},
      {"evaluation", 103, Target::kLauncher, {SIGUSR1}},
  };
  for (const Place& place : places) {
    SCOPED_TRACE(place.name + " in step " + std::to_string(place.step));
    const std::string step = place.step < 0 ? "" : " step=" + std::to_string(place.step);
    const auto program = held_up(place.name, "seconds=0.3" + step, {0, 1}, 2);
    send(*program, place.target, place.signals);
    const Outcome outcome = program->wait();
    EXPECT_EQ(outcome.code, kResumable) << outcome.out << outcome.error;
    EXPECT_NE(outcome.out.find("stopped by a signal"), std::string::npos) << outcome.out;
    expect_none_left();
    if (place.step < 0) {
      EXPECT_EQ(newest_step(), 0);
      continue;
    }
    EXPECT_EQ(stopped_at(0), stopped_at(1));
    EXPECT_EQ(newest_step(), stopped_at(0));
    EXPECT_GT(newest_step(), place.step);
    EXPECT_LE(newest_step(), place.step + 2);
  }
  const Outcome finished = run(train(), 2);
  EXPECT_EQ(finished.code, 0) << finished.error;
  const Records stopped = records();

  fs::remove_all(run_dir());
  const Outcome straight = run(train(), 2);
  EXPECT_EQ(straight.code, 0) << straight.error;
  EXPECT_EQ(stopped.losses, records().losses);
  EXPECT_EQ(stopped.checksums, records().checksums);
  EXPECT_EQ(stopped.evaluations, records().evaluations);
  EXPECT_EQ(stopped.losses.size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(stopped.evaluations.size(), 12u);
}

// Signals during shutdown do not change the exit code.
TEST_F(Signals, AreIgnoredDuringShutdown) {
  const auto program = held_up("leave", "seconds=0.5", {0, 1}, 2, {"--set", "train.max_steps=20"});
  send(*program, Target::kAllRanks, {SIGTERM, SIGINT, SIGHUP, SIGUSR1});
  const Outcome outcome = program->wait();
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(newest_step(), 20);
}

class Grace : public Signals {
 protected:
  // Expects the run to end after the grace period of one second, and to print which checkpoint is
  // the newest. The exit code is 75 if this start of the run has saved a checkpoint, otherwise 1.
  void expect_ended_by_grace(Program& program, const std::string& newest, int code = kResumable) {
    const auto signaled = std::chrono::steady_clock::now();
    const Outcome outcome = program.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - signaled;
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.error;
    EXPECT_GT(took.count(), 0.9);
    EXPECT_LT(took.count(), 1 + 6);
    EXPECT_NE(outcome.error.find("1 s after the request to stop"), std::string::npos)
        << outcome.error;
    EXPECT_NE(outcome.error.find(newest), std::string::npos) << newest << " in\n" << outcome.error;
    expect_none_left();
  }
  const std::vector<std::string> grace_ = {
      "--grace", "1s", "--set", "checkpoint.every_steps=30", "--set", "checkpoint.keep_best=false"};
};

TEST_F(Grace, EndsAStepThatHangs) {
  const auto program = held_up("step", "step=32", {1}, 2, grace_);
  send(*program, Target::kLauncher, {SIGUSR1});
  expect_ended_by_grace(*program, "checkpoints/step-00000030");
  EXPECT_EQ(run(train(), 2).code, 0);
  EXPECT_EQ(losses_of(run_dir()).size(), static_cast<size_t>(kSteps));
}

// The other ranks receive no signal and wait for the one that hangs.
TEST_F(Grace, EndsARunIfOnlyTheHangingRankIsSignaled) {
  const auto program = held_up("step", "step=32", {1}, 2, grace_);
  send(*program, Target::kOneRank, {SIGTERM});
  expect_ended_by_grace(*program, "checkpoints/step-00000030");
}

TEST_F(Grace, EndsADiskThatHangs) {
  EXPECT_EQ(run(train({"--set", "train.max_steps=20"}), 2).code, 0);
  const auto program = held_up("write", "index=30", {0}, 2, grace_);
  send(*program, Target::kLauncher, {SIGUSR1});
  expect_ended_by_grace(*program, "checkpoints/step-00000020", 1);
}

TEST_F(Grace, EndsAStartThatHangs) {
  const auto program = held_up("open_data", "", {0}, 2, grace_);
  send(*program, Target::kAllRanks, {SIGTERM});
  expect_ended_by_grace(*program, "no checkpoint has been saved yet", 1);
}

TEST_F(Grace, EndsARunOfOneRank) {
  const auto program = held_up("step", "step=32", {0}, 0, grace_);
  program->signal(SIGINT);
  expect_ended_by_grace(*program, "checkpoints/step-00000030");
}

}  // namespace
}  // namespace trireme::testing
