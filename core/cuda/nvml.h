// How busy a GPU is, from the driver's management library, where that is installed.
#pragma once

#include <optional>
#include <string>

#include "core/cuda/library.h"
#include "core/device.h"

namespace trireme::cuda {

class Nvml {
 public:
  // The GPU with this address on the PCI bus, "0000:3b:00.0".
  explicit Nvml(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Nothing without the library. What a GPU does not tell stays 0.
  std::optional<DeviceLoad> load() const;

 private:
  Library library_;
  int (*shutdown_)() = nullptr;
  void* device_ = nullptr;
};

}  // namespace trireme::cuda
