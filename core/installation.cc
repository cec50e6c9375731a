#include "core/installation.h"

#include <cstdlib>
#include <system_error>

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Returns the folder of the running program, or an empty path if it cannot be determined.
fs::path program_folder() {
  std::error_code unknown;
  return fs::read_symlink("/proc/self/exe", unknown).parent_path();
}

}  // namespace

fs::path share_folder() {
  const fs::path program = program_folder();
  if (program.empty()) return {};
  const fs::path folder = program.parent_path() / "share" / "trireme";
  std::error_code ignored;  // an inaccessible path counts as missing
  return fs::is_directory(folder, ignored) ? folder : fs::path();
}

std::string find_shared(const std::string& path, const std::string& folder) {
  std::error_code ignored;  // an inaccessible path counts as missing
  if (path.empty() || fs::path(path).is_absolute() || fs::exists(path, ignored)) return path;
  const fs::path share = share_folder();
  const fs::path shared = share / folder / path;
  return !share.empty() && fs::exists(shared, ignored) ? shared.string() : path;
}

std::string cache_folder() {
  const auto from = [](const char* variable, const char* below) {
    const char* folder = std::getenv(variable);
    return folder && *folder == '/' ? (fs::path(folder) / below).string() : "";
  };
  const std::string given = from("XDG_CACHE_HOME", "trireme");
  return given.empty() ? from("HOME", ".cache/trireme") : given;
}

std::string script_command(const std::string& name) {
  const std::string installed = "trireme-" + name;
  std::error_code ignored;  // an inaccessible path counts as missing
  const fs::path program = program_folder();
  return !program.empty() && fs::exists(program / installed, ignored) ? installed
                                                                      : "launch/" + name;
}

fs::path helper_program(const std::string& name) {
  // The tests are in other folders of the build tree.
  return program_folder().parent_path() / "bin" / ("trireme-" + name);
}

}  // namespace trireme
