// Differences between two configurations.
#pragma once

#include <string>
#include <vector>

#include "core/field_options.pb.h"
#include "trainer/config/config.h"

namespace trireme::train {

struct ConfigDifference {
  std::string path;  // "optimizer.sgd.momentum", "model.network.layer[2].dense.units"
  // Values in text format ("0.9", "\"lenet\"", "[1, 8, 8]"); empty if the field is unset and has no
  // default. If the field set in a oneof of messages differs, the path is that of the enclosing
  // message and the values are the names of the fields: {"schedule", "cosine", "one_cycle"}. If
  // only one has a message with (presence_counts), its value is "set".
  std::string a;
  std::string b;
  // The effect of the change on a run that resumes: the option of the field, or of the nearest
  // enclosing field that has it.
  OnResume::Rule on_resume = OnResume::REFUSED;
};

// Returns the differences in the order of the fields. An unset field equals one that is set to its
// default, except a message with (presence_counts). run_dir is ignored, since it does not affect
// the run.
std::vector<ConfigDifference> config_differences(const RunConfig& a, const RunConfig& b);

}  // namespace trireme::train
