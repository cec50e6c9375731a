// A progress bar for long-running commands.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace trireme::cli {

// Shows progress on one line of stderr, updated a few times a second. Shows nothing if stderr is
// not a terminal.
class ProgressBar {
 public:
  ProgressBar();
  // Erases the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Shows "[=====     ] 1200/5000 samples  3.1 k/s  1.2s left".
  void show(int64_t done, int64_t total, std::string_view unit);
  // Shows a text instead: "indexing shard 12 of 1282".
  void show(std::string_view text);
  // Erases the line, so that other text can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool due();

  const bool live_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point shown_;
  bool drawn_ = false;
};

}  // namespace trireme::cli
