// Access to the CUDA objects behind a Device. Only for folders named cuda/ and nccl/.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <exception>
#include <string>

#include "core/device.h"

namespace trireme::cuda {

// Throws DeviceError with the call and CUDA's name and description of the error if `result` is not
// cudaSuccess.
void check(cudaError_t result, const char* call);

// Returns the CUDA stream of a Stream. Throws Error if the stream does not belong to a CUDA device.
cudaStream_t handle(Stream& stream);

struct Properties {
  int index = 0;  // among the devices visible to this process
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t shared_bytes_per_block = 0;  // maximum after opt-in
  size_t l2_bytes = 0;
  size_t memory_bytes = 0;
};
// Throws Error if the device is not a CUDA device.
const Properties& properties(Device& device);

// Makes every later wait for a stream or event of this device throw `failure`. Used for failures
// that are detected outside of streams, e.g. by a watchdog. May be called from any thread.
void fail(Device& device, std::exception_ptr failure);

}  // namespace trireme::cuda

// Evaluates a call of the CUDA runtime and throws DeviceError if it fails.
#define TRIREME_CUDA(call) ::trireme::cuda::check(call, #call)
