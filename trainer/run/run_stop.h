// Whether a run is to stop before its end, which all ranks agree on.
#pragma once

#include <filesystem>

#include "comm/communicator.h"
#include "trainer/run/stop.h"

namespace trireme::train {

class RunStop {
 public:
  // `signals`: who is told to stop by signals; null: nobody. Both outlive it.
  RunStop(comm::Communicator& communicator, StopSignals* signals);
  ~RunStop();
  RunStop(const RunStop&) = delete;
  RunStop& operator=(const RunStop&) = delete;

  // Where the checkpoints are that a rank names which does not stop in time; see say_last_words.
  void prepare_last_words(const std::filesystem::path& checkpoints);

  // Whether a signal has told this rank to stop.
  bool requested() const { return signals_ && signals_->requested(); }
  // Stops where a signal has told any rank to. All ranks call it together. Returns stopped().
  bool agree();
  // All ranks come here at the same place, whichever of them were told.
  void stop();
  bool stopped() const { return stopped_; }

 private:
  comm::Communicator& communicator_;
  StopSignals* signals_;
  bool stopped_ = false;
};

}  // namespace trireme::train
