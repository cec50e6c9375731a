// Saves checkpoints asynchronously: training waits while its arrays are copied, and continues while
// a thread writes the copy. There is memory for one copy, so only one save is in progress at a
// time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "trainer/checkpoint/checkpoint.h"

namespace trireme::train {

// The result of a save.
struct SaveOutcome {
  CheckpointState state;
  // The complete checkpoint; empty if the save failed.
  std::filesystem::path path = {};
  std::string error = {};    // why the save failed
  std::string problem = {};  // as in SavedCheckpoint
  double seconds = 0;        // from the first copy to the end
  double stall_seconds = 0;  // time for which training waited
};

class CheckpointWriter {
 public:
  // `timeout` is the time in seconds after which a save is reported as failed.
  CheckpointWriter(Checkpoints checkpoints, StateArrays arrays, double timeout);
  // Waits a few seconds for a save in progress and then abandons it, so that a hanging disk does
  // not block the end of the run.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Returns the step whose save is in progress, or nullopt.
  std::optional<int64_t> writing() const;
  // Returns how long the save in progress has taken so far.
  double seconds() const;
  // Blocks until the save in progress has ended, for at most this long. Returns at once if the save
  // has been reported as overdue.
  void wait_up_to(double seconds) const;
  // Copies the arrays and starts to write them (see Snapshot::take). Requires that no save is in
  // progress. The writing thread calls `before` first.
  void start(const CheckpointState& state, std::function<void()> before = {});
  // Returns the result of each save once, after it has ended. If a save exceeds the timeout,
  // returns a failure once; the save stays in progress and may still succeed.
  std::optional<SaveOutcome> poll();
  // Blocks until the save in progress has ended or exceeds the timeout, and returns its result.
  SaveOutcome wait();

 private:
  struct Job;
  using Clock = std::chrono::steady_clock;

  SaveOutcome collect();
  SaveOutcome overdue();

  std::chrono::duration<double> timeout_;
  std::unique_ptr<Job> job_;
  std::thread thread_;
  std::future<SaveOutcome> written_;
  SaveOutcome save_;  // in progress
  Clock::time_point started_;
  bool reported_overdue_ = false;
};

}  // namespace trireme::train
