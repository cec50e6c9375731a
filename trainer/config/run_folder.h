// The folder of a run: config.txtpb, samples.json, tokenizer/, metrics.jsonl, evaluation.json,
// summary.json, tensorboard/, checkpoints/, log/rank-N.log.
#pragma once

#include <filesystem>
#include <string>

#include "data/files/descriptor.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Returns the path of a new folder, runs/<model>-<date>-<time>.
std::filesystem::path default_run_folder(const RunConfig& config);

// The paths of a run's files.
struct RunFolder {
  std::filesystem::path path;

  std::filesystem::path config() const { return path / "config.txtpb"; }
  std::filesystem::path samples() const { return path / "samples.json"; }
  std::filesystem::path tokenizer() const { return path / "tokenizer"; }
  std::filesystem::path evaluation() const { return path / "evaluation.json"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path tensorboard() const { return path / "tensorboard"; }
  std::filesystem::path summary() const { return path / "summary.json"; }
  std::filesystem::path environment() const { return path / "environment.json"; }
  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  std::filesystem::path log(int rank) const;

  // Creates missing folders, removes temporary files of an interrupted run and checks that files
  // can be written. Throws Error.
  void prepare() const;
};

// Returns the run that a path belongs to: its folder, a checkpoint in it, `best` or `latest`.
// Throws ConfigError if the path does not exist or does not belong to a run.
RunFolder find_run(const std::filesystem::path& path);

// An exclusive lock on a run's folder (flock), so that only one run writes to it. The kernel
// releases it when the process ends.
class RunLock {
 public:
  // Waits up to three seconds for another process to release the lock. Throws Error naming the
  // holder.
  explicit RunLock(const std::filesystem::path& run_folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Returns why the folder could not be locked; empty if it is locked.
  const std::string& problem() const { return problem_; }
  // Returns false if the folder no longer contains the locked file. This is the case if the folder
  // has been removed, emptied, moved or replaced; a second run could then use the path.
  bool holds() const;

 private:
  std::filesystem::path path_;  // path of the lock file
  int file_ = -1;
  std::string problem_;
};

}  // namespace trireme::train
