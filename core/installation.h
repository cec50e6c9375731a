// What is installed with the program: PREFIX/bin holds it, PREFIX/share/trireme its files. A build
// tree has the same layout.
#pragma once

#include <filesystem>
#include <string>

namespace trireme {

// PREFIX/share/trireme; empty where there is no such folder.
std::filesystem::path share_folder();

// `path` if it exists or is absolute, else share_folder()/FOLDER/`path` if that exists, else
// `path`.
std::string find_shared(const std::string& path, const std::string& folder = "");

// The command that runs a script of launch/: "trireme-get-data" where it is installed beside the
// program, else "launch/get-data".
std::string script_command(const std::string& name);

}  // namespace trireme
