// Reports a rank that was asked to stop and has not finished within its grace period.
#pragma once

#include <filesystem>

#include "comm/communicator.h"

namespace trireme::train {

// Prints which checkpoint is the newest and, if there are other ranks, makes the watchdogs end all
// of them with exit code 75. Returns if no watchdog does. Suitable for StopSignals::on_deadline:
// reads nothing that the main thread changes, and does not wait for that thread or for the disk.
// `checkpoints` is empty while the run has no folder yet. `grace` is the period in seconds, for the
// message.
void report_missed_deadline(comm::Communicator& communicator,
                            const std::filesystem::path& checkpoints, double grace);

}  // namespace trireme::train
