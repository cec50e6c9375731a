// Locations of the program's own files and of the user's cache. An installation contains the
// program in PREFIX/bin and its files in PREFIX/share/trireme. A build tree has the same layout.
#pragma once

#include <filesystem>
#include <string>

namespace trireme {

// Returns PREFIX/share/trireme, or an empty path if that folder does not exist.
std::filesystem::path share_folder();

// Returns `path` if it exists or is absolute, otherwise share_folder()/`folder`/`path` if that
// exists, otherwise `path`.
std::string find_shared(const std::string& path, const std::string& folder = "");

// Returns the user's cache folder: $XDG_CACHE_HOME/trireme or ~/.cache/trireme. Returns an empty
// string if neither variable is set.
std::string cache_folder();

// Returns the command that runs a script of launch/: "trireme-get-data" if the script is installed
// next to the program, otherwise "launch/get-data".
std::string script_command(const std::string& name);

// Returns the path of the program trireme-NAME, which is installed next to this program and is in
// bin/ of a build tree.
std::filesystem::path helper_program(const std::string& name);

}  // namespace trireme
