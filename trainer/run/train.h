// A run from its configuration to its end: steps, evaluation, checkpoints, records.
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"
#include "core/error.h"
#include "trainer/config/config.h"
#include "trainer/profile/options.h"
#include "trainer/report/metrics.h"
#include "trainer/run/stop.h"

namespace trireme::train {

struct TrainOptions {
  // "auto": go on from the newest good checkpoint of the run's folder if there is one; "never":
  // start afresh, refused when there is one; else the path of a checkpoint, of a folder of them or
  // of a run. One of another run is refused when the run's folder holds checkpoints already.
  std::string resume = "auto";
  // Go on from a checkpoint although the data is not what it was saved from.
  bool accept_data_change = false;
  // Who is told to stop by signals; null: nobody. Outlives the run.
  StopSignals* stop = nullptr;
  // Rank 0 reports nothing on stdout and stderr. For tests.
  bool quiet = false;
  // Training stands still until each save has ended, so that none is left out. For tests.
  bool wait_for_saves = false;
  // Steps to profile; none where it is not set.
  std::optional<ProfileOptions> profile = {};
};

struct TrainResult {
  ExitCode code = ExitCode::kDone;  // or kResumable: stopped by a signal, saved
  std::string run_dir;
  Summary summary;
};

// Trains. All ranks call it together. Failures that one rank meets before the first step are thrown
// on all of them alike, with the exit code in the error; later ones only where they happen, and the
// caller then aborts the rest.
TrainResult train(const Config& config, comm::Communicator& communicator,
                  const TrainOptions& options = {});

}  // namespace trireme::train
