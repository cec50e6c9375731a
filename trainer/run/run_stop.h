// Lets all ranks of a run agree to stop early, after a signal to any of them.
#pragma once

#include <filesystem>

#include "comm/communicator.h"
#include "trainer/run/stop_signals.h"

namespace trireme::train {

class RunStop {
 public:
  // `signals` may be null: this rank then never asks to stop. Both arguments must outlive this
  // object.
  RunStop(comm::Communicator& communicator, StopSignals* signals);
  ~RunStop();
  RunStop(const RunStop&) = delete;
  RunStop& operator=(const RunStop&) = delete;

  // Sets the folder whose newest checkpoint is named if this rank does not stop in time. The exit
  // code is then 75 if a checkpoint has been saved since this call, and 1 otherwise.
  void set_checkpoint_folder(const std::filesystem::path& checkpoints);

  // Returns whether a signal has asked this rank to stop.
  bool requested() const { return signals_ && signals_->requested(); }
  // Stops if any rank has received a signal. Returns stopped(). Collective.
  bool agree();
  // Stops. All ranks must call it at the same point of the run.
  void stop();
  bool stopped() const { return stopped_; }

 private:
  comm::Communicator& communicator_;
  StopSignals* signals_;
  bool stopped_ = false;
};

}  // namespace trireme::train
