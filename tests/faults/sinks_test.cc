// Metrics and logs on disks that are full, fail or hang. Training must not be affected: it succeeds
// with the same parameters.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/build_tree.h"
#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

// Five epochs of four steps.
constexpr const char* kRun = R"(
model { zoo { name: "mlp" hidden: [16] dropout: 0.1 } }
data { synthetic { shape: [1, 4, 4] count: 64 eval_count: 16 } }
batch { global: 16 }
train { epochs: 5 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.05 }
checkpoint { every_steps: 4 every_epochs: 0 }
metrics { csv: true }
)";

class SinkFaults : public FaultTest {
 protected:
  void SetUp() override { config_ = scratch_.write("run.txtpb", kRun); }

  // Runs with the fault (see disk.cc) on the disk of the file or folder `name` in the run folder.
  Outcome broken_disk(const std::string& name, const std::string& fault,
                      const std::string& only = "") {
    std::vector<std::string> environment = {
        "LD_PRELOAD=" + (build_tree() / "tests" / "libdisk.so").string(),
        "TRIREME_DISK_FOLDER=" + (run_dir() / name).string(), "TRIREME_DISK_FAULT=" + fault};
    if (!only.empty()) environment.push_back("TRIREME_DISK_ONLY=" + only);
    return run(train(), 0, environment);
  }

  static std::string model_of(const fs::path& folder) {
    return read_file(folder / "checkpoints" / "step-00000020" / "model.safetensors");
  }

  // Compares the model with that of a run without optional outputs on a good disk, which is run
  // once.
  void expect_same_model() {
    static const std::string model = [&] {
      const Scratch scratch;
      const Outcome outcome =
          run({"train", config_, "--run-dir", (scratch / "run").string(), "--set",
               "metrics.tensorboard=false", "--set", "metrics.csv=false"});
      EXPECT_EQ(outcome.code, 0) << outcome.error;
      return model_of(scratch / "run");
    }();
    EXPECT_FALSE(model.empty());
    EXPECT_EQ(model_of(run_dir()), model);
  }

  // Returns the number of lines of the output that contain the fragment.
  static int64_t mentions(const Outcome& outcome, const std::string& fragment) {
    return std::ssize(lines_with(outcome.out, fragment));
  }

  void expect_unharmed(const Outcome& outcome, const std::vector<std::string>& warnings) {
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.error;
    expect_same_model();
    for (const std::string& each : warnings) EXPECT_EQ(mentions(outcome, each), 1) << outcome.out;
    expect_none_left();
  }
};

TEST_F(SinkFaults, WritesEverythingToAGoodDisk) {
  expect_unharmed(broken_disk("tensorboard", "eio 1000000"), {});
  EXPECT_EQ(losses_of(run_dir()).size(), 20u);
  EXPECT_FALSE(fs::is_empty(run_dir() / "tensorboard"));
  for (const char* name : {"steps.csv", "evaluations.csv"}) {
    EXPECT_FALSE(read_file(run_dir() / name).empty()) << name;
  }
}

TEST_F(SinkFaults, TensorBoardOnADiskThatFillsUp) {
  expect_unharmed(broken_disk("tensorboard", "enospc 3"),
                  {"tensorboard/events.out.tfevents", "dropped, not written"});
  EXPECT_EQ(losses_of(run_dir()).size(), 20u);
}

TEST_F(SinkFaults, TensorBoardOnADiskThatIsFull) {
  expect_unharmed(broken_disk("tensorboard", "enospc 1"), {"training continues without it"});
  EXPECT_EQ(losses_of(run_dir()).size(), 20u);
}

TEST_F(SinkFaults, TensorBoardOnADiskThatHangs) {
  const Outcome outcome = broken_disk("tensorboard", "hang 1");
  expect_unharmed(outcome, {"tensorboard hangs: "});
  EXPECT_EQ(losses_of(run_dir()).size(), 20u);
  EXPECT_LT(outcome.seconds, 60);
}

TEST_F(SinkFaults, TablesOnADiskThatFails) {
  expect_unharmed(broken_disk("steps.csv", "eio 2"), {"steps.csv: cannot be written to"});
  EXPECT_EQ(losses_of(run_dir()).size(), 20u);
}

TEST_F(SinkFaults, MetricsOnADiskThatIsFull) {
  expect_unharmed(broken_disk("metrics.jsonl", "enospc 1", "write"),
                  {"metrics.jsonl: cannot be written to", "dropped, not written"});
}

// Checkpoints wait for metrics to be written, but not forever.
TEST_F(SinkFaults, MetricsOnADiskThatHangs) {
  const Outcome outcome = broken_disk("metrics.jsonl", "hang 1", "write");
  expect_unharmed(outcome, {"metrics.jsonl hangs: "});
  EXPECT_LT(outcome.seconds, 60);
}

TEST_F(SinkFaults, TheLogOnADiskThatHangs) {
  const Outcome outcome = broken_disk("log", "hang 1", "open");
  expect_unharmed(outcome, {"log hangs: "});
  EXPECT_EQ(losses_of(run_dir()).size(), 20u);
  EXPECT_LT(outcome.seconds, 60);
}

// The lag of each rank is computed from the ledgers that the watchdog compares, and is written at
// the end of the run at the latest.
TEST_F(SinkFaults, RecordsTheLagOfEachRank) {
  const Outcome outcome =
      broken("forward sleep seconds=0.005 rank=1 times=0", 2,
             {"--set", "train.epochs=50", "--set", "train.eval_every_epochs=0"});
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.error;
  const auto records = lines_with(read_file(run_dir() / "metrics.jsonl"), "\"event\":\"ranks\"");
  ASSERT_FALSE(records.empty());
  for (const std::string& line : records) {
    const auto lags = nlohmann::json::parse(line)["lag_ms"];
    ASSERT_EQ(lags.size(), 2u) << line;
    EXPECT_EQ(lags[0], 0) << line;
    EXPECT_GT(lags[1], 2) << line;
  }
}

}  // namespace
}  // namespace trireme::testing
