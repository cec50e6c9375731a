// Options that several commands have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "trainer/config.h"

namespace CLI {
class App;
}

namespace trireme {

// --set, --run-dir, --device, --eager: all of them assignments to fields of the configuration.
struct ConfigOptions {
  std::vector<std::string> assignments;
  std::string run_dir;
  std::string device;
  bool eager = false;

  void add_to(CLI::App& app);
  std::vector<std::string> all_assignments() const;
};

// CONFIG|ZOO: a configuration file, or the name of a zoo network with the input and the batch that
// are usual for it.
struct TargetOptions : ConfigOptions {
  std::string name;
  int64_t batch = 0;  // of each rank; 0: as configured
  int threads = 0;    // 0: as configured

  void add_to(CLI::App& app);
};

struct Target {
  Config config;
  SampleSpec samples;
  bool in_memory = true;  // the samples, see Dataset
};
// Throws ConfigError or DataError.
Target load_target(const TargetOptions& options, int ranks);

// Loads the file on every rank; all must come to the same configuration in the same program.
Config load_config_together(Communicator& communicator, const std::string& path,
                            const std::vector<std::string>& assignments);

}  // namespace trireme
