// Options that several commands share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "launch/cli.h"
#include "trainer/config/config.h"

namespace trireme::cli {

// The heading of the ConfigOptions in help.
inline constexpr const char* kConfigGroup = "Configuration";

// Adds --set FIELD=VALUE, which may be repeated.
void add_set_option(ArgumentParser app, std::vector<std::string>& assignments);

// The options --set, --run-dir, --device and --eager, which all set fields of the configuration.
struct ConfigOptions {
  std::vector<std::string> assignments;
  std::string run_dir;
  std::string device;
  bool eager = false;

  void add_to(ArgumentParser app);
  // Returns the assignments of --set, followed by those of the other options.
  std::vector<std::string> all_assignments() const;
};

// Arguments that select a trained network: the folder of a run or one of its checkpoints, and
// --best.
struct CheckpointOptions {
  std::string path;
  bool best = false;

  void add_path(ArgumentParser app);
  void add_best(ArgumentParser app);
  // Returns `path` or, with --best, the path of the best checkpoint of the run.
  std::string checkpoint() const;
};

// Returns an error message if `text` is not a valid value of --profile ("steps=N..M"), or "".
std::string step_window_problem(const std::string& text);

// The arguments CONFIG|ZOO, --batch and --threads: a configuration file, an ONNX model, or the name
// of a zoo network, which is used with its usual input and batch size.
struct TargetOptions : ConfigOptions {
  std::string name;
  int64_t batch = 0;  // samples per rank; 0 for the configured number
  int threads = 0;    // per rank; 0 for the configured number

  void add_to(ArgumentParser app);
};

struct Target {
  train::Config config;
  data::SampleSpec samples;
  bool in_memory = true;  // the data is in memory, see Dataset::in_memory
};
// Loads the target for a run of `ranks` ranks. Throws ConfigError or DataError.
Target load_target(const TargetOptions& options, int ranks);

// Returns the usual samples of a zoo network.
data::SampleSpec zoo_samples(const std::string& name);

// Loads the configuration on every rank. Throws AgreedError on all ranks if it cannot be loaded, or
// if the ranks have different configurations or versions of the program. Collective.
train::Config load_config_together(comm::Communicator& communicator, const std::string& path,
                                   const std::vector<std::string>& assignments);

}  // namespace trireme::cli
