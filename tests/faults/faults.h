// A fixture for runs of the program that are broken on purpose, and checks of how they end.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/launch/program.h"

namespace trireme::testing {

// How much longer runs may take with a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kSlowdown = 3;
#else
inline constexpr double kSlowdown = 1;
#endif

// A run that would take minutes without a fault. A step takes about a millisecond.
inline constexpr const char* kEndlessRun = R"(
model { zoo { name: "mlp" hidden: [64, 64] } }
data { synthetic { shape: [1, 8, 8] count: 4096 eval_count: 4096 } }
batch { global: 32 }
train { max_steps: 1000000 eval_every_steps: 25 eval_every_epochs: 0 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.001 }
checkpoint { every_steps: 60 every_epochs: 0 keep_best: false }
buckets { first_bytes: 4096 bytes: 8192 last_bytes: 1024 }
watchdog { timeout_seconds: 3 first_timeout_seconds: 20 }
)";

// Returns the processes, except zombies, whose command line contains this folder.
std::vector<pid_t> processes_of(const std::filesystem::path& run_dir);

// Runs of kEndlessRun. The environment variable TRIREME_FAULTS_CONFIG can add fields to it, to
// break other ways to train.
class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override { config_ = write_config(kEndlessRun); }

  // Writes a configuration to a file, with the fields that TRIREME_FAULTS_CONFIG adds.
  std::string write_config(const std::string& text) const;

  // Returns whether the runs are sharded (parallel.shard), by TRIREME_FAULTS_CONFIG.
  static bool is_sharded();

  std::filesystem::path run_dir() const { return scratch_ / "run"; }
  std::vector<std::string> train(const std::vector<std::string>& more = {}) const;
  // Runs until the faults have ended the run. See inject.cc for the syntax of `faults`. The seconds
  // of the outcome are those since the first of them struck.
  Outcome broken(const std::string& faults, int ranks, const std::vector<std::string>& more = {});

  // Expects the job to have ended in time without leaving processes, and all survivors to have
  // printed the same diagnosis, which contains the fragments. The logs of the ranks in `logs` must
  // contain it too.
  void expect_same_diagnosis(const Outcome& outcome, double seconds,
                             const std::vector<std::string>& fragments,
                             const std::vector<int>& logs) const;
  void expect_none_left() const;

  Scratch scratch_;
  std::string config_;
};

// Returns the lines that contain the fragment.
std::vector<std::string> lines_with(const std::string& text, const std::string& fragment);

}  // namespace trireme::testing
