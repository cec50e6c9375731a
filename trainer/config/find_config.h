// Configurations by name: files, and those that are installed with the program.
#pragma once

#include <string>
#include <vector>

namespace trireme::train {

// The configurations that are installed with the program, by name: "digits.txtpb", ... in the order
// of their names.
std::vector<std::string> installed_configs();

// The file that `name` stands for: itself or, where there is no such file and `name` has no folder,
// the installed configuration of that name.
std::string find_config(const std::string& name);

}  // namespace trireme::train
