// The program's commands, one file each. Each file has a function add_NAME, which declares the
// command's arguments and, if the command line selects the command, sets `chosen`. main() then runs
// it on every rank.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "launch/cli.h"

namespace trireme::cli {

// The command to run.
struct Command {
  // Runs on all ranks and returns the exit code. Throws AgreedError for failures that are the same
  // on all ranks.
  std::function<int(comm::Communicator&)> run;
  // Called instead of printing `reason` if the ranks cannot be joined; returns the exit code.
  std::function<int(const std::string& reason)> diagnose;
  // The time limit for joining the ranks, in seconds, if the user has set one.
  std::optional<double> init_timeout;
};

// Wraps the work of a single-process command. Running it on more than one rank is an error.
std::function<int(comm::Communicator&)> on_one_rank(std::function<int()> work);

void add_train(ArgumentParser app, Command& chosen);
void add_report(ArgumentParser app, Command& chosen);
void add_eval(ArgumentParser app, Command& chosen);
void add_predict(ArgumentParser app, Command& chosen);
void add_generate(ArgumentParser app, Command& chosen);
void add_export(ArgumentParser app, Command& chosen);
void add_inspect(ArgumentParser app, Command& chosen);
void add_bench(ArgumentParser app, Command& chosen);
void add_doctor(ArgumentParser app, Command& chosen);
void add_config(ArgumentParser app, Command& chosen);
void add_runs(ArgumentParser app, Command& chosen);
void add_zoo(ArgumentParser app, Command& chosen);
void add_completion(ArgumentParser app, Command& chosen);
void add_data(ArgumentParser app, Command& chosen);  // adds the subcommands of launch/data.h

}  // namespace trireme::cli
