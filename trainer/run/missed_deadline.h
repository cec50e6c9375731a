// Reports a rank that was asked to stop and has not finished within its grace period.
#pragma once

#include <filesystem>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"

namespace trireme::train {

class MissedDeadline {
 public:
  // `checkpoints` is empty while the run has no folder yet. Checkpoints that it has now do not
  // count as saved by this process. The communicator must outlive this object.
  MissedDeadline(comm::Communicator& communicator, std::filesystem::path checkpoints);

  // Prints which checkpoint is the newest and, if there are other ranks, makes the watchdogs end
  // all of them. Returns, if no watchdog ends this process, the exit code: 75 if this process has
  // saved a checkpoint, from which the run resumes with some progress, and 1 otherwise. Suitable
  // for StopSignals::on_deadline: reads nothing that the main thread changes, and does not wait for
  // that thread or for the disk. `grace` is the period in seconds, for the message.
  ExitCode report(double grace) const;

 private:
  comm::Communicator& communicator_;
  std::filesystem::path checkpoints_;
  std::vector<std::filesystem::path> before_;
};

}  // namespace trireme::train
