// How far a command is, for who waits for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace trireme::cli {

// A line on the terminal that stderr is, written over a few times a second; nothing elsewhere.
class ProgressBar {
 public:
  ProgressBar();
  // Takes the line away.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // "[=====     ] 1200/5000 samples  3.1 k/s  1.2s left"
  void show(int64_t done, int64_t total, std::string_view unit);
  // Words instead: "indexing shard 12 of 1282".
  void show(std::string_view text);
  // For a line that stays.
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
