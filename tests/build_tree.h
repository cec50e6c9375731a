// The build tree, or unpacked bundle, that the running test program belongs to.
#pragma once

#include <filesystem>

namespace trireme::testing {

// Returns the folder that contains bin/ and tests/.
inline std::filesystem::path build_tree() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}

}  // namespace trireme::testing
