// Replaces libraries by the fakes in tests/emulation: functions that are linked into the program.
#include "core/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "core/error.h"

namespace trireme::cuda {

Library::Library(std::string product, const std::vector<std::string>&)
    : product_(std::move(product)) {
  if (product_ == "NVML") {
    problem_ = "NVML is not emulated";
    return;
  }
  path_ = "emulated " + product_;
  handle_ = dlopen(nullptr, RTLD_NOW);
}

Library::~Library() {
  if (handle_) dlclose(handle_);
}

void* Library::symbol(const char* name) const {
  if (!handle_) throw DeviceError(name, problem_);
  void* found = dlsym(handle_, name);
  if (!found) throw DeviceError(name, path_ + " has no such function");
  return found;
}

}  // namespace trireme::cuda
