#include "trainer/run/train.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/watchdog/init_guard.h"
#include "core/error.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "launch/peak.h"
#include "trainer/run/stop_signals.h"

namespace trireme::cli {
namespace {

// The headings of the options in help.
constexpr const char* kStart = "Starting and resuming";
constexpr const char* kMonitoring = "Monitoring";
constexpr const char* kTimeouts = "Timeouts";

// Returns the time limit for the ranks to connect: that of the first step, if it is shorter than
// the default and the user has not set one. A configuration that cannot be read is an error later.
std::optional<double> default_init_timeout(const std::string& config,
                                           const std::vector<std::string>& assigned) {
  if (std::getenv(comm::kInitTimeoutVariable)) return {};
  try {
    const double first =
        train::load_config(config, assigned).run.watchdog().first_timeout_seconds();
    if (first > 0) return std::min(first, comm::init_timeout());
  } catch (const Error&) {
  }
  return {};
}

}  // namespace

void add_train(ArgumentParser app, Command& chosen) {
  struct Options : ConfigOptions {
    std::string config;
    std::string resume = "auto";
    bool accept_data_change = false;
    double grace = 0;
    std::string init_from;
    std::string profile;
    std::string metrics_port;

    std::vector<std::string> assigned() const {
      std::vector<std::string> all = all_assignments();
      if (!init_from.empty()) all.push_back("model.init_from=" + init_from);
      if (!metrics_port.empty()) all.push_back("metrics.port=" + metrics_port);
      return all;
    }
  };
  auto options = std::make_shared<Options>();
  ArgumentParser command =
      app.add_command("train", "Train a network as described by a configuration file");
  command
      .add_option("CONFIG", options->config,
                  "Configuration file (*.txtpb), or the name of an installed one (digits.txtpb)")
      .required();
  options->add_to(command);
  command
      .add_option("--resume", options->resume,
                  "auto: resume from the newest checkpoint of the run's folder, if any; never: "
                  "start from scratch; PATH: resume from this checkpoint or run. If it belongs to "
                  "another run, it counts only while --run-dir has no checkpoints")
      .metavar("auto|never|PATH")
      .group(kStart)
      .show_default();
  command
      .add_flag("--accept-data-change", options->accept_data_change,
                "Resume even if the data has changed since the checkpoint was saved (default: "
                "this is an error)")
      .group(kStart);
  command
      .add_option("--init-from", options->init_from,
                  "Initialize the parameters from a *.safetensors or *.onnx file, a checkpoint or "
                  "a run; short for --set model.init_from=PATH")
      .metavar("PATH")
      .group(kStart);
  command
      .add_option("--grace", options->grace,
                  "Exit at most this long after SIGTERM, SIGINT, SIGHUP or SIGUSR1, even if the "
                  "checkpoint is not complete: 25s, 2m (default: no limit)")
      .environment("TRIREME_GRACE")
      .group(kTimeouts)
      .seconds()
      .not_negative()
      .metavar("TIME");
  command
      .add_option(
          "--profile", options->profile,
          "Profile steps N to M: writes a timeline for ui.perfetto.dev to RUN/trace.json and the "
          "slowest operations to RUN/profile.txt")
      .metavar("steps=N..M")
      .group(kMonitoring)
      .check(step_window_problem);
  command
      .add_option("--metrics-port", options->metrics_port,
                  "Serve Prometheus metrics on this port of rank 0 at /metrics; short for --set "
                  "metrics.port=PORT")
      .metavar("PORT")
      .group(kMonitoring);
  command
      .add_option("--init-timeout", chosen.init_timeout,
                  "Time limit for the ranks to connect, in seconds; 0 disables it (default: "
                  "$TRIREME_INIT_TIMEOUT, or watchdog.first_timeout_seconds, at most 300)")
      .group(kTimeouts)
      .not_negative();
  command.epilog(R"(Examples:
  mpirun -np 2 trireme train digits.txtpb --run-dir runs/digits
  trireme train digits.txtpb --set train.epochs=5 --resume never
  srun --mpi=pmix trireme train run.txtpb --set batch.global=512 --grace 25s
  trireme train digits.txtpb --profile steps=10..20

Exit codes: 0 done, 1 failure, 2 bad configuration, 3 bad data, 75 stopped by a
signal after a checkpoint: run it again to resume.
)");
  command.on_chosen([options, &chosen] {
    // Installed before the ranks are joined, since a signal may arrive earlier.
    const auto stop = std::make_shared<train::StopSignals>(options->grace);
    if (!chosen.init_timeout) {
      chosen.init_timeout = default_init_timeout(options->config, options->assigned());
    }
    chosen.run = [options, stop](comm::Communicator& communicator) {
      const train::Config config =
          load_config_together(communicator, options->config, options->assigned());
      train::TrainOptions training{.resume = options->resume,
                                   .accept_data_change = options->accept_data_change,
                                   .stop = stop.get(),
                                   .measure_peak_flops = measure_rank_flops};
      if (!options->profile.empty()) {
        training.profile = {train::parse_step_window(options->profile), measure_peaks};
      }
      return static_cast<int>(train::train(config, communicator, training).code);
    };
  });
}

}  // namespace trireme::cli
