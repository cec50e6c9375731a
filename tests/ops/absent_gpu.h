// GPUs that are only described to cuDNN.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <ostream>
#include <string>

namespace trireme::ops::cuda {

// A device as cuDNN 9.19 describes it, with the properties that it requires.
struct AbsentGpu {
  const char* name;
  int version, multiprocessors, shared_bytes;
  int64_t l2_bytes, memory_bytes;
};

inline std::string json(const AbsentGpu& gpu) {
  return fmt::format(
      R"({{"cudaDeviceId":0,"deviceVer":{},"driverVer":13000,"deviceName":"{}","l2CacheSize":{},)"
      R"("maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,)"
      R"("maxSharedMemoryPerBlockOptin":{},"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,)"
      R"("memClockRateKHz":1500000,"multiProcessorCount":{},"pciDeviceId":0,)"
      R"("regsPerBlock":65536,"smClockRateKHz":1500000,"totalGlobalMem":{},"warpSize":32,)"
      R"("maxCtasPerSM":32,"maxRegistersPerSM":65536,"isTccDriver":0,"supportCoopLaunch":1,)"
      R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64]}})",
      gpu.version, gpu.name, gpu.l2_bytes, gpu.shared_bytes, gpu.multiprocessors, gpu.memory_bytes);
}

inline void PrintTo(const AbsentGpu& gpu, std::ostream* out) { *out << gpu.name; }

inline constexpr AbsentGpu kAbsentGpus[] = {
    {"H200", 900, 132, 232448, 62914560, 150000000000},
    {"A100", 800, 108, 166912, 41943040, 85000000000},
};

}  // namespace trireme::ops::cuda
