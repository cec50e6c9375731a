// A run from its configuration to its end: steps, evaluation, checkpoints, records.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "core/error.h"
#include "data/dataset.h"
#include "model/graph.h"
#include "trainer/config.h"
#include "trainer/metrics.h"
#include "trainer/profile/options.h"
#include "trainer/stop.h"

namespace trireme {

struct TrainOptions {
  // "auto": go on from the newest good checkpoint of the run's folder if there is one; "never":
  // start afresh, refused when there is one; else the path of a checkpoint, of a folder of them or
  // of a run.
  std::string resume = "auto";
  // Who is told to stop by signals; null: nobody. Outlives the run.
  StopSignals* stop = nullptr;
  // Where rank 0 reports progress: stdout. Tests turn it off.
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
TrainResult train(const Config& config, Communicator& communicator,
                  const TrainOptions& options = {});

// The samples as configured, with errors placed in the configuration file. `progress` as in
// OpenOptions.
std::unique_ptr<Dataset> open_data(const Config& config, Part part,
                                   const std::function<void(std::string_view)>& progress = {});
// What the network reads when it reads these samples.
ModelInput model_input(const SampleSpec& spec);
// The network as configured, with errors placed in the configuration file.
Graph build_network(const Config& config, const SampleSpec& spec);

}  // namespace trireme
