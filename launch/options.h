// Options that several commands have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "launch/cli.h"
#include "trainer/config/config.h"

namespace trireme::cli {

// In a command's help, those of ConfigOptions.
inline constexpr const char* kConfigGroup = "Configuration";

// --set FIELD=VALUE, once or more.
void add_set_option(ArgumentParser app, std::vector<std::string>& assignments);

// --set, --run-dir, --device, --eager: all of them assignments to fields of the configuration.
struct ConfigOptions {
  std::vector<std::string> assignments;
  std::string run_dir;
  std::string device;
  bool eager = false;

  void add_to(ArgumentParser app);
  std::vector<std::string> all_assignments() const;
};

// A trained network: the folder of a run, or one of its checkpoints.
struct CheckpointOptions {
  std::string path;
  bool best = false;

  void add_path(ArgumentParser app);
  void add_best(ArgumentParser app);
  std::string checkpoint() const;
};

// What is wrong with the window of a --profile; empty: nothing.
std::string refuse_bad_window(const std::string& text);

// CONFIG|ZOO: a configuration file, or the name of a zoo network with the input and the batch that
// are usual for it.
struct TargetOptions : ConfigOptions {
  std::string name;
  int64_t batch = 0;  // of each rank; 0: as configured
  int threads = 0;    // 0: as configured

  void add_to(ArgumentParser app);
};

struct Target {
  train::Config config;
  data::SampleSpec samples;
  bool in_memory = true;  // the samples, see Dataset
};
// Throws ConfigError or DataError.
Target load_target(const TargetOptions& options, int ranks);

// What the network of the zoo is meant for.
data::SampleSpec zoo_samples(const std::string& name);

// Loads the file on every rank; all must come to the same configuration in the same program.
train::Config load_config_together(comm::Communicator& communicator, const std::string& path,
                                   const std::vector<std::string>& assignments);

}  // namespace trireme::cli
