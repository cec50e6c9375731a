// What the CUDA parts of other rooms need of a CUDA device. For folders named cuda/ and nccl/
// alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <exception>
#include <string>

#include "core/device.h"

namespace trireme::cuda {

// Throws DeviceError, with the call and CUDA's name and text for its result, unless it succeeded.
void check(cudaError_t result, const char* call);

// A stream of a CUDA device as CUDA knows it.
cudaStream_t handle(Stream& stream);

struct Properties {
  int index = 0;  // among the devices that this process may use
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t shared_bytes_per_block = 0;  // that a kernel may opt in to
  size_t l2_bytes = 0;
  size_t memory_bytes = 0;
};
const Properties& properties(Device& device);

// Makes every wait for streams and events of this device throw it from now on: for what fails
// beside them. From any thread.
void fail(Device& device, std::exception_ptr failure);

}  // namespace trireme::cuda

// Runs a call of the CUDA runtime and checks it.
#define TRIREME_CUDA(call) ::trireme::cuda::check(call, #call)
