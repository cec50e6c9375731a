// Reads the load of a GPU with NVML, the management library of the driver, if it is installed.
#pragma once

#include <optional>
#include <string>

#include "core/cuda/library.h"
#include "core/device.h"

namespace trireme::cuda {

class Nvml {
 public:
  // `pci_bus_id` is the address of the GPU, e.g. "0000:3b:00.0".
  explicit Nvml(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns nullopt if NVML is not available. Values that the GPU does not report are 0.
  std::optional<DeviceLoad> load() const;

 private:
  Library library_;
  int (*shutdown_)() = nullptr;
  void* device_ = nullptr;
};

}  // namespace trireme::cuda
