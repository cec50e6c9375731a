// Saves checkpoints beside training: it stands still while the arrays are copied, and goes on while
// a thread writes the copy. There is memory for one copy, so only one save is under way at a time.
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

// What became of a save.
struct SaveOutcome {
  CheckpointState state;
  // Of the checkpoint, which is complete; empty when there is none.
  std::filesystem::path path = {};
  std::string error = {};    // why there is none
  std::string problem = {};  // as in SavedCheckpoint
  double seconds = 0;        // from the first copy to the end
  double stall_seconds = 0;  // that training stood still
};

class CheckpointWriter {
 public:
  // `timeout`: seconds that a save may take.
  CheckpointWriter(Checkpoints checkpoints, StateArrays arrays, double timeout);
  // Gives a save under way a few seconds to end, and then gives it up: a disk that hangs holds up
  // nothing.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // The step whose save is under way.
  std::optional<int64_t> writing() const;
  double seconds() const;  // that it has taken so far
  // Blocks until the save under way has ended, at most so long; not for one that takes too long
  // already.
  void give_time(double seconds) const;
  // Copies the arrays and begins to write. Nothing is under way. `before` is called on the thread
  // that writes, before anything else.
  void start(const CheckpointState& state, std::function<void()> before = {});
  // Once for each save when it has ended. Before that, once, a failure for one that takes too long;
  // it stays under way and may still succeed.
  std::optional<SaveOutcome> poll();
  // Blocks until the save under way has ended or takes too long.
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
  SaveOutcome save_;  // under way, as far as it is known
  Clock::time_point started_;
  bool told_ = false;  // that it takes too long
};

}  // namespace trireme::train
