// Finds configurations: files, and those installed with the program.
#pragma once

#include <string>
#include <vector>

namespace trireme::train {

// Returns the sorted names of the installed configurations: "digits.txtpb", ...
std::vector<std::string> installed_configs();

// Returns the path of a configuration: `name` itself or, if there is no such file and `name` has no
// folder, the installed configuration of that name.
std::string find_config(const std::string& name);

// Returns "; did you mean 'digits.txtpb'?" if an installed configuration has a similar name.
std::string suggest_config(const std::string& name);

}  // namespace trireme::train
