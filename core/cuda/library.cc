#include "core/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/error.h"

namespace trireme::cuda {
namespace {

void add_matches(std::vector<std::string>& folders, const std::string& pattern) {
  glob_t found{};
  glob(pattern.c_str(), 0, nullptr, &found);
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    const std::string folder = found.gl_pathv[i];
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
      folders.push_back(folder);
    }
  }
  globfree(&found);
}

std::vector<std::string> split_path(const char* variable) {
  std::vector<std::string> folders;
  const char* const paths = std::getenv(variable);
  std::istringstream in(paths ? paths : "");
  for (std::string path; std::getline(in, path, ':');) {
    if (!path.empty()) folders.push_back(path);
  }
  return folders;
}

// Returns the folder of the `python3` that a shell would start, or an empty string if there is
// none. The link is not resolved: in a virtual environment it points to another Python, whose
// packages are elsewhere.
std::string python_folder() {
  for (const std::string& folder : split_path("PATH")) {
    if (access((folder + "/python3").c_str(), X_OK) == 0) return folder;
  }
  return "";
}

// Returns the folders in which a CUDA toolkit or NVIDIA's Python wheels install libraries, in
// search order.
std::vector<std::string> default_folders() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable))
      add_matches(folders, std::string(root) + "/lib64");
  }
  add_matches(folders, "/usr/local/cuda/lib64");

  std::vector<std::string> packages = split_path("PYTHONPATH");
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* root = std::getenv(variable)) {
      packages.push_back(std::string(root) + "/lib/python3*/site-packages");
    }
  }
  if (const std::string python = python_folder(); !python.empty()) {
    packages.push_back(python + "/../lib/python3*/site-packages");
  }
  if (const char* home = std::getenv("HOME")) {
    packages.push_back(std::string(home) + "/.local/lib/python3*/site-packages");
  }
  packages.insert(packages.end(),
                  {"/usr/local/lib/python3*/dist-packages", "/usr/local/lib/python3*/site-packages",
                   "/usr/lib/python3*/dist-packages"});
  for (const std::string& package : packages) add_matches(folders, package + "/nvidia/*/lib");
  return folders;
}

std::string path_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
}

}  // namespace

Library::Library(std::string product, const std::vector<std::string>& names)
    : product_(std::move(product)) {
  std::string load_error;
  const auto open = [&](const std::string& file) {
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) load_error = dlerror();
    return handle_ != nullptr;
  };
  const auto open_first = [&](const std::vector<std::string>& folders) {
    for (const std::string& name : names) {
      if (open(name)) return true;
    }
    for (const std::string& folder : folders) {
      for (const std::string& name : names) {
        const std::string file = folder + "/" + name;
        if (std::filesystem::exists(file) && open(file)) return true;
      }
    }
    return false;
  };
  const std::vector<std::string> folders = default_folders();
  if (open_first(folders)) {
    path_ = path_of(handle_);
    return;
  }
  problem_ = fmt::format("{} ({}) cannot be loaded from LD_LIBRARY_PATH, the system{}{}: {}",
                         product_, fmt::join(names, " or "), folders.empty() ? "" : ", ",
                         fmt::join(folders, ", "), load_error);
}

Library::~Library() {
  if (handle_) dlclose(handle_);
}

void* Library::symbol(const char* name) const {
  if (!handle_) throw DeviceError(name, problem_);
  void* found = dlsym(handle_, name);
  if (!found) throw DeviceError(name, fmt::format("{} has no such function", path_));
  return found;
}

}  // namespace trireme::cuda
