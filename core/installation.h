// The folders of the program and of its user. What is installed with it: PREFIX/bin holds it,
// PREFIX/share/trireme its files. A build tree has the same layout.
#pragma once

#include <filesystem>
#include <string>

namespace trireme {

// PREFIX/share/trireme; empty where there is no such folder.
std::filesystem::path share_folder();

// `path` if it exists or is absolute, else share_folder()/FOLDER/`path` if that exists, else
// `path`.
std::string find_shared(const std::string& path, const std::string& folder = "");

// Where this user keeps what can be computed again: $XDG_CACHE_HOME/trireme or ~/.cache/trireme;
// empty when neither is known.
std::string cache_folder();

// The command that runs a script of launch/: "trireme-get-data" where it is installed beside the
// program, else "launch/get-data".
std::string script_command(const std::string& name);

}  // namespace trireme
