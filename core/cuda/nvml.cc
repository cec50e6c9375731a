#include "core/cuda/nvml.h"

namespace trireme::cuda {
namespace {

// Constants and types from NVML's API reference; its header is not part of the CUDA runtime.
constexpr int kSuccess = 0;
constexpr int kClockOfMultiprocessors = 1;
constexpr int kSensorOfGpu = 0;
struct Utilization {
  unsigned gpu, memory;  // percent of the time
};
struct Memory {
  unsigned long long total, free, used;  // bytes
};
using Init = int();
using Shutdown = int();
using GetHandleByPciBusId = int(const char*, void** device);
using GetUtilization = int(void* device, Utilization*);
using GetMemory = int(void* device, Memory*);
using GetPower = int(void* device, unsigned* milliwatts);
using GetClock = int(void* device, int kind, unsigned* megahertz);
using GetTemperature = int(void* device, int sensor, unsigned* celsius);

}  // namespace

Nvml::Nvml(const std::string& pci_bus_id) : library_("NVML", {"libnvidia-ml.so.1"}) {
  if (!library_.problem().empty()) return;
  if (library_.function<Init>("nvmlInit_v2")() != kSuccess) return;
  shutdown_ = library_.function<Shutdown>("nvmlShutdown");
  const auto find = library_.function<GetHandleByPciBusId>("nvmlDeviceGetHandleByPciBusId_v2");
  if (find(pci_bus_id.c_str(), &device_) != kSuccess) device_ = nullptr;
}

Nvml::~Nvml() {
  if (shutdown_) shutdown_();
}

std::optional<DeviceLoad> Nvml::load() const {
  if (!device_) return std::nullopt;
  DeviceLoad load;
  Utilization utilization;
  if (library_.function<GetUtilization>("nvmlDeviceGetUtilizationRates")(device_, &utilization) ==
      kSuccess) {
    load.utilization_percent = utilization.gpu;
  }
  Memory memory;
  if (library_.function<GetMemory>("nvmlDeviceGetMemoryInfo")(device_, &memory) == kSuccess) {
    load.memory_used_bytes = static_cast<double>(memory.used);
    load.memory_total_bytes = static_cast<double>(memory.total);
  }
  unsigned value = 0;
  if (library_.function<GetPower>("nvmlDeviceGetPowerUsage")(device_, &value) == kSuccess) {
    load.power_watts = value / 1e3;
  }
  if (library_.function<GetClock>("nvmlDeviceGetClockInfo")(device_, kClockOfMultiprocessors,
                                                            &value) == kSuccess) {
    load.clock_mhz = value;
  }
  if (library_.function<GetTemperature>("nvmlDeviceGetTemperature")(device_, kSensorOfGpu,
                                                                    &value) == kSuccess) {
    load.temperature_celsius = value;
  }
  return load;
}

}  // namespace trireme::cuda
