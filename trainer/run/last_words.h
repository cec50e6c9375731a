// What a rank says that was told to stop and has not come to it in time.
#pragma once

#include <filesystem>

#include "comm/communicator.h"

namespace trireme::train {

// Tells which checkpoint is left, and has the watchdogs of all ranks end them with exit code 75;
// returns where there are none. For StopSignals::at_deadline: reads nothing that the main thread
// changes, and waits neither for it nor for the disk. `checkpoints`: empty while the run has no
// folder yet.
void say_last_words(comm::Communicator& communicator, const std::filesystem::path& checkpoints,
                    double grace);

}  // namespace trireme::train
