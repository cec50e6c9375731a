// The configuration of a run: read from a file and the command line, completed and checked before
// anything else happens.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "trainer/config/config.pb.h"

namespace trireme::train {

struct Config {
  RunConfig run;
  // Where fields came from: field path ("optimizer.sgd.momentum") to "FILE:LINE" or "--set".
  std::map<std::string, std::string> places;
  // What is not wrong, but perhaps not meant either.
  std::vector<std::string> warnings;

  // "FILE:LINE: field.path", as much as is known of the field or of what encloses it.
  std::string where(const std::string& path) const;
  // An error of another room that begins with a field path ("data.root: no such folder"), with the
  // place put in front.
  ConfigError located(const ConfigError& error) const;
};

// Reads the file (find_config), applies assignments ("a.b.c=value"), fills in defaults and checks
// everything that needs neither data nor devices. Throws ConfigError: "FILE:LINE: field.path: what
// is wrong; did you mean 'x'?".
Config load_config(const std::string& path, std::span<const std::string> assignments);
// The same for text that is in memory; `file` is the name in messages.
Config parse_config(const std::string& text, const std::string& file,
                    std::span<const std::string> assignments);

// Applies one "a.b.c=value" to any message. Values need no quotes; repeated fields take a
// comma-separated list, elements of repeated messages an index (layer[2].dense.units=10), messages
// the name of one of their fields (schedule=cosine) or {text}.
std::vector<std::string> assign(google::protobuf::Message& message, const std::string& assignment);

// The configuration as text that load_config reads back.
std::string to_text(const RunConfig& config);
// A name for the trained network, for people and file names.
std::string model_name(const RunConfig& config);
// A hash of all that the result of training depends on, as hex.
std::string config_hash(const RunConfig& config);

}  // namespace trireme::train
