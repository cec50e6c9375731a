#include "trainer/run/train.h"

#include <memory>
#include <string>
#include <vector>

#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "launch/peak.h"
#include "trainer/run/stop.h"

namespace trireme::cli {
namespace {

// Groups of options in its help.
constexpr const char* kStart = "Where it begins";
constexpr const char* kWatch = "Watch it";
constexpr const char* kTimes = "Times";

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
  ArgumentParser command = app.add_command("train", "Train a network as a configuration file says");
  command
      .add_option("CONFIG", options->config,
                  "Configuration (*.txtpb): a file, or one that is installed, such as digits.txtpb")
      .required();
  options->add_to(command);
  command
      .add_option("--resume", options->resume,
                  "auto: go on from the newest checkpoint in the run's folder, if any; never; or "
                  "the path of a checkpoint or of a run. One of another run needs a --run-dir "
                  "without checkpoints")
      .metavar("auto|never|PATH")
      .group(kStart)
      .show_default();
  command
      .add_flag("--accept-data-change", options->accept_data_change,
                "Go on from a checkpoint though the samples are no longer those that it was saved "
                "from")
      .group(kStart);
  command
      .add_option("--init-from", options->init_from,
                  "Begin with the values of *.safetensors, *.onnx, a checkpoint or a run: --set "
                  "model.init_from=...")
      .metavar("PATH")
      .group(kStart);
  command
      .add_option(
          "--grace", options->grace,
          "From SIGTERM, SIGINT or SIGUSR1 to the end, saved or not: 25s, 2m; unset: as long "
          "as saving takes")
      .environment("TRIREME_GRACE")
      .group(kTimes)
      .seconds()
      .not_negative()
      .metavar("TIME");
  command
      .add_option(
          "--profile", options->profile,
          "Write what these steps did to RUN/trace.json, for ui.perfetto.dev, and what took "
          "longest to RUN/profile.txt")
      .metavar("steps=N..M")
      .group(kWatch)
      .check(refuse_bad_window);
  command
      .add_option("--metrics-port", options->metrics_port,
                  "Answer Prometheus on this port of rank 0, at /metrics: --set metrics.port=...")
      .metavar("PORT")
      .group(kWatch);
  command
      .add_option("--init-timeout", chosen.init_timeout,
                  "Seconds that the ranks may take to find one another; 0: for ever; unset: "
                  "TRIREME_INIT_TIMEOUT, or 300")
      .group(kTimes)
      .not_negative();
  command.epilog(R"(Examples:
  mpirun -np 2 trireme train digits.txtpb --run-dir runs/digits
  trireme train digits.txtpb --set train.epochs=5 --resume never
  srun --mpi=pmix trireme train run.txtpb --set batch.global=512 --grace 25s
  trireme train digits.txtpb --profile steps=10..20

Exit codes: 0 done, 1 failure, 2 bad configuration, 3 bad data, 75 stopped by a
signal and saved: run it again to go on.
)");
  command.on_chosen([options, &chosen] {
    // Now, not when the ranks have been joined: a signal may come before.
    const auto stop = std::make_shared<train::StopSignals>(options->grace);
    chosen.run = [options, stop](comm::Communicator& communicator) {
      const train::Config config =
          load_config_together(communicator, options->config, options->assigned());
      train::TrainOptions training{.resume = options->resume,
                                   .accept_data_change = options->accept_data_change,
                                   .stop = stop.get()};
      if (!options->profile.empty()) {
        training.profile = {train::parse_step_window(options->profile), measure_peaks};
      }
      return static_cast<int>(train::train(config, communicator, training).code);
    };
  });
}

}  // namespace trireme::cli
