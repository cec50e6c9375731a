// Where this test program lies, which tells where the rest of its tree is: a build tree, or an
// unpacked bundle.
#pragma once

#include <filesystem>

namespace trireme::testing {

// The folder that holds bin/ and tests/.
inline std::filesystem::path tree() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}

}  // namespace trireme::testing
