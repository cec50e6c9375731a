#include <CLI/CLI.hpp>
#include <memory>

#include "launch/commands.h"
#include "launch/options.h"
#include "trainer/trainer.h"

namespace trireme {

void add_train(CLI::App& app, Command& chosen) {
  struct Options : ConfigOptions {
    std::string config;
    std::string resume = "auto";
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
  command.callback([options, &chosen] {
    chosen.run = [options](Communicator& communicator) {
      const Config config =
          load_config_together(communicator, options->config, options->all_assignments());
      return static_cast<int>(train(config, communicator, {.resume = options->resume}).code);
    };
  });
}

}  // namespace trireme
