#include "trainer/run/train.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "comm/control.h"
#include "core/file.h"
#include "core/json.h"
#include "trainer/run/run_loop.h"
#include "trainer/run/run_parts.h"
#include "trainer/run/run_setup.h"
#include "trainer/run/run_stop.h"

namespace trireme::train {
namespace {

TrainResult stopped_before_the_first_step(bool prints, const RunParts& parts) {
  if (prints) std::puts("stopped by a signal before the first step; nothing to save");
  Summary summary;
  summary.status = "stopped";
  summary.steps = parts.state.step;
  return {ExitCode::kResumable, parts.folder.path.string(), summary};
}

// Returns whether an earlier process has completed this run. Collective.
bool is_complete(comm::Communicator& communicator, const RunParts& parts) {
  const std::filesystem::path file = parts.folder.summary();
  bool done = false;
  if (communicator.rank() == 0 && std::filesystem::exists(file)) {
    const auto summary = parse_json(read_text(file), /*throws=*/false);
    done = summary.is_object() && summary.contains("status") && summary.contains("steps") &&
           summary["status"] == "done" && summary["steps"] == parts.state.step;
  }
  return broadcast(communicator, done ? "yes" : "", 0) == "yes";
}

TrainResult already_complete(const RunParts& parts, const std::string& why_early) {
  parts.reporter->already_complete(parts.state, why_early);
  Summary summary;
  summary.status = "done";
  summary.epochs = parts.state.epoch;
  summary.steps = parts.state.step;
  return {ExitCode::kDone, parts.folder.path.string(), summary};
}

}  // namespace

TrainResult train(const Config& given, comm::Communicator& communicator,
                  const TrainOptions& options) {
  Config config = given;
  RunParts parts;
  RunStop stop(communicator, options.stop);
  RunSetup setup(config, communicator, options, stop, parts);
  if (!setup.prepare()) {
    return stopped_before_the_first_step(communicator.rank() == 0 && !options.quiet, parts);
  }
  RunLoop loop({.train = config.run.train(),
                .checkpoint = config.run.checkpoint(),
                .spike_stddevs = config.run.checks().loss_spike_stds(),
                .wait_for_saves = options.wait_for_saves},
               communicator, stop, parts);
  if (loop.finished() && is_complete(communicator, parts)) {
    return already_complete(parts, loop.why_early());
  }
  setup.start_records();
  loop.run();
  loop.save_final();
  if (loop.ends_with_best()) loop.evaluate_result(setup.load_best());
  const Summary summary = loop.end();
  return {stop.stopped() ? ExitCode::kResumable : ExitCode::kDone, parts.folder.path.string(),
          summary};
}

}  // namespace trireme::train
