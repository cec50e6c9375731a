// Trains a model as configured, with evaluations, checkpoints and records.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "core/error.h"
#include "ops/backend.h"
#include "trainer/config/config.h"
#include "trainer/profile/options.h"
#include "trainer/report/metrics.h"
#include "trainer/run/stop_signals.h"

namespace trireme::train {

struct TrainOptions {
  // "auto" resumes from the newest valid checkpoint of the run's folder if there is one. "never"
  // starts from scratch, which is an error if there is one. Otherwise the path of a checkpoint, a
  // folder of checkpoints or a run; a path into another run is an error if the run's folder has
  // checkpoints.
  std::string resume = "auto";
  // Resumes even if the data differs from that of the checkpoint.
  bool accept_data_change = false;
  // Requests to stop; null if there are none. Must outlive the run.
  StopSignals* stop = nullptr;
  // Rank 0 prints nothing to stdout and stderr. For tests.
  bool quiet = false;
  // Training waits for each save to end, so that none is skipped. For tests.
  bool wait_for_saves = false;
  // Steps to profile, if any.
  std::optional<ProfileOptions> profile = {};
  // Measures the floating-point operations per second that this rank could do at most, while all
  // other ranks measure theirs. Not collective. Without it, records have no utilization.
  std::function<double(const Config&, comm::Communicator&, ops::Backend&)> measure_peak_flops = {};
};

struct TrainResult {
  ExitCode code = ExitCode::kDone;  // or kResumable if a signal stopped it and it was saved
  std::string run_dir;
  Summary summary;
};

// Trains. Errors of any rank before the first step are thrown on all ranks, as AgreedError with the
// exit code. Later errors are thrown only on the rank where they occur; the caller must then abort
// the other ranks. Collective.
TrainResult train(const Config& config, comm::Communicator& communicator,
                  const TrainOptions& options = {});

}  // namespace trireme::train
