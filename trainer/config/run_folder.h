// The folder of a run: config.txtpb, samples.json, metrics.jsonl, evaluation.json, summary.json,
// tensorboard/, checkpoints/, log/rank-N.log.
#pragma once

#include <filesystem>
#include <string>

#include "data/files/descriptor.h"
#include "trainer/config/config.h"

namespace trireme::train {

// runs/<model>-<date>-<time>, not there yet.
std::filesystem::path default_run_folder(const RunConfig& config);

struct RunFolder {
  std::filesystem::path path;

  std::filesystem::path config() const { return path / "config.txtpb"; }
  std::filesystem::path samples() const { return path / "samples.json"; }
  std::filesystem::path evaluation() const { return path / "evaluation.json"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path tensorboard() const { return path / "tensorboard"; }
  std::filesystem::path summary() const { return path / "summary.json"; }
  std::filesystem::path environment() const { return path / "environment.json"; }
  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  std::filesystem::path log(int rank) const;

  // Creates what is missing and makes sure that files can be written. Throws Error.
  void prepare() const;
};

// The run that the path is of: its folder, a checkpoint in it, or `best` or `latest`. Throws
// ConfigError when there is no such path, or no run around it.
RunFolder find_run(const std::filesystem::path& path);

// The right to write to a run's folder. The kernel takes it back when the process ends, however it
// ends.
class RunLock {
 public:
  // Waits a few seconds for a process that is just ending. Throws Error that names the holder.
  explicit RunLock(const std::filesystem::path& run_folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Why the folder is used without a lock; empty: it is not.
  const std::string& problem() const { return problem_; }
  // Whether the folder still holds the file that was locked. It does not when somebody has removed,
  // emptied, moved or replaced the folder, and then nothing keeps a second run out of it.
  bool holds() const;

 private:
  std::filesystem::path path_;  // of the file
  int file_ = -1;
  std::string problem_;
};

}  // namespace trireme::train
