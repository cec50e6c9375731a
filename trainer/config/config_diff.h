// What two configurations have that is not the same.
#pragma once

#include <string>
#include <vector>

#include "core/on_resume.pb.h"
#include "trainer/config/config.h"

namespace trireme::train {

struct ConfigDifference {
  std::string path;  // "optimizer.sgd.momentum", "model.network.layer[2].dense.units"
  // Values in text format ("0.9", "\"lenet\"", "[1, 8, 8]"); empty where the field is unset and has
  // no default. Of a choice of messages the path is that of the choice and the values are the names
  // of what was chosen: {"schedule", "cosine", "one_cycle"}.
  std::string a;
  std::string b;
  // What the change does to a run that is resumed: the option of the field, or else of the nearest
  // field that it is in.
  OnResume::Rule on_resume = OnResume::REFUSED;
};

// In the order of the fields, with defaults resolved: a field that is left out is the same as one
// that is set to its default. Without run_dir, which says where results lie and not what is run.
std::vector<ConfigDifference> config_differences(const RunConfig& a, const RunConfig& b);

}  // namespace trireme::train
