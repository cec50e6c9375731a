// Reads the configuration of a run from a file and the command line.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "trainer/config/config.pb.h"

namespace trireme::train {

// The value of batch.micro that asks for the largest micro-batch that fits into memory.
inline constexpr int64_t kLargestMicro = -1;

// A complete and valid configuration, and where its values were set.
struct Config {
  RunConfig run;
  // The source of each field: its path ("optimizer.sgd.momentum") to "FILE:LINE" or "--set".
  std::map<std::string, std::string> places;
  // One line for each deprecated field and each setting that is valid but probably not intended.
  std::vector<std::string> warnings;

  // Returns "FILE:LINE: field.path" for messages. If the field is not set, the location is that of
  // the innermost enclosing message that is, or only FILE.
  std::string where(const std::string& path) const;
  // Returns the error with the location of its field prepended if its message begins with a field
  // path, such as "data.root: no such folder"; otherwise the error itself.
  ConfigError located(const ConfigError& error) const;
};

// Reads a file or an installed configuration (see find_config), applies assignments
// ("a.b.c=value"), fills in defaults and checks everything that requires neither data nor devices.
// Throws ConfigError: "FILE:LINE: field.path: problem; did you mean 'x'?".
Config load_config(const std::string& path, std::span<const std::string> assignments);
// Like load_config, but for text in memory; `file` is its name in messages.
Config parse_config(const std::string& text, const std::string& file,
                    std::span<const std::string> assignments);

// Applies one assignment "a.b.c=value" to any message. A string value needs no quotes; a repeated
// field takes a comma-separated list; an element of repeated messages has an index
// (layer[2].dense.units=10); a message takes the name of one of its fields (schedule=cosine) or
// {text}. Returns a warning for each deprecated field. Throws ConfigError.
std::vector<std::string> assign(google::protobuf::Message& message, const std::string& assignment);

// Returns the configuration as text that load_config accepts.
std::string to_text(const RunConfig& config);
// Returns a name of the trained network, for display and file names.
std::string model_name(const RunConfig& config);
// Returns a hexadecimal hash of all fields that affect the result of training.
std::string config_hash(const RunConfig& config);

}  // namespace trireme::train
