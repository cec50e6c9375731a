// The folder of a run: config.txtpb, samples.json, tokenizer/, metrics.jsonl, evaluation.json,
// summary.json, tensorboard/, checkpoints/, log/rank-N.log.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/folder_lock.h"
#include "trainer/config/config.h"

namespace trireme::train {

// The folder of runs without run_dir, in the working directory.
inline constexpr const char* kRunsFolder = "runs";
// Creates a folder runs/<model>-<date>-<time>, with a suffix -2, -3, ... if there is one already,
// for example of a run that started in the same second. Returns its path. Throws Error if that
// fails.
std::filesystem::path create_run_folder(const RunConfig& config);

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
  // Returns the paths of the files in the folder itself that runs write.
  std::vector<std::filesystem::path> files() const;
  // Returns true if a file of the run is the file at `other`, also by another name.
  bool has(const std::filesystem::path& other) const;

  // Throws ConfigError if a run in this folder would replace files of others: the folder is not
  // that of a run, but has files with the names of a run's, or one of them is an input of the run.
  void require_own_files(const RunConfig& config) const;
  // Creates missing folders, removes temporary files of an interrupted run and checks that files
  // can be written. Throws Error.
  void prepare() const;
};

// Returns the run that a path belongs to: its folder, a checkpoint in it, `best` or `latest`.
// Throws ConfigError if the path does not exist or does not belong to a run.
RunFolder find_run(const std::filesystem::path& path);
// Returns the folder of the run that the path of a run, its checkpoints, a checkpoint, `best` or
// `latest` names, by the names of folders alone, or an empty path.
std::filesystem::path run_of_checkpoint(const std::filesystem::path& path);

// The lock on a run's folder, so that only one run writes to it.
class RunLock : public FolderLock {
 public:
  explicit RunLock(const std::filesystem::path& run_folder)
      : FolderLock(run_folder, "run folder", "choose another with --run-dir") {}
};

}  // namespace trireme::train
