// The program's commands, one file each. A file adds its options to the command line; when the user
// has chosen it, it sets what main then runs on every rank.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "launch/cli.h"

namespace trireme::cli {

// What the user asked for. All ranks run it together; the result is the exit code. Failures that
// all ranks meet alike are thrown as AgreedError.
struct Command {
  std::function<int(comm::Communicator&)> run;
  // What to do where the ranks could not be joined, instead of printing the reason.
  std::function<int(const std::string& reason)> diagnose;
  // How long the ranks may take to find one another, in seconds, where the user has said so.
  std::optional<double> init_timeout;
};

// The work of a command that one process does, with threads: more than one rank is refused.
std::function<int(comm::Communicator&)> on_one_rank(std::function<int()> work);

void add_train(ArgumentParser app, Command& chosen);
void add_report(ArgumentParser app, Command& chosen);
void add_eval(ArgumentParser app, Command& chosen);
void add_predict(ArgumentParser app, Command& chosen);
void add_export(ArgumentParser app, Command& chosen);
void add_inspect(ArgumentParser app, Command& chosen);
void add_bench(ArgumentParser app, Command& chosen);
void add_doctor(ArgumentParser app, Command& chosen);
void add_config(ArgumentParser app, Command& chosen);
void add_runs(ArgumentParser app, Command& chosen);
void add_zoo(ArgumentParser app, Command& chosen);
void add_completion(ArgumentParser app, Command& chosen);
void add_data(ArgumentParser app, Command& chosen);  // those of `trireme data`, see launch/data.h

}  // namespace trireme::cli
