#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "launch/commands.h"
#include "launch/options.h"
#include "trainer/stop.h"
#include "trainer/trainer.h"

namespace trireme {

void add_train(CLI::App& app, Command& chosen) {
  struct Options : ConfigOptions {
    std::string config;
    std::string resume = "auto";
    double grace = 0;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("train", "Train a network as a configuration file says");
  command.add_option("CONFIG", options->config, "Configuration (*.txtpb)")->required();
  options->add_to(command);
  command
      .add_option("--resume", options->resume,
                  "auto: go on from the newest checkpoint in the run's folder, if any; never; or "
                  "the path of a "
                  "checkpoint or of a run")
      ->capture_default_str();
  command
      .add_option(
          "--grace", options->grace,
          "From SIGTERM, SIGINT or SIGUSR1 to the end, saved or not: 25s, 2m; unset: as long "
          "as saving takes")
      ->envname("TRIREME_GRACE")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}}))
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--init-timeout", chosen.init_timeout,
                  "Seconds that the ranks may take to find one another; 0: for ever; unset: "
                  "TRIREME_INIT_TIMEOUT, or 300")
      ->check(CLI::NonNegativeNumber);
  command.callback([options, &chosen] {
    // Now, not when the ranks have been joined: a signal may come before.
    const auto stop = std::make_shared<StopSignals>(options->grace);
    chosen.run = [options, stop](Communicator& communicator) {
      const Config config =
          load_config_together(communicator, options->config, options->all_assignments());
      return static_cast<int>(
          train(config, communicator, {.resume = options->resume, .stop = stop.get()}).code);
    };
  });
}

}  // namespace trireme
