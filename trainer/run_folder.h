// The folder of a run: config.txtpb, metrics.jsonl, summary.json, checkpoints/, log/rank-N.log.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

#include "trainer/config.h"

namespace trireme {

// runs/<model>-<date>-<time>, not there yet.
std::filesystem::path default_run_folder(const RunConfig& config);

struct RunFolder {
  std::filesystem::path path;

  std::filesystem::path config() const { return path / "config.txtpb"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path summary() const { return path / "summary.json"; }
  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  std::filesystem::path log(int rank) const;

  // Creates what is missing and makes sure that files can be written. Throws Error.
  void prepare() const;
};

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

 private:
  int file_ = -1;
  std::string problem_;
};

// What one rank has to say for later: lines with the time. A log that cannot be written is done
// without.
class RankLog {
 public:
  explicit RankLog(const std::filesystem::path& path);
  ~RankLog();
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;

  bool writes() const { return file_ != nullptr; }
  void line(const std::string& text);

 private:
  std::FILE* file_ = nullptr;
};

}  // namespace trireme
