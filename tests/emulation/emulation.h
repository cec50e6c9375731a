// The emulated GPU as fakes of libraries and tests see it; programs see the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

#include "threads.h"

namespace trireme::emulation {

// Queues what a library would run on the GPU, also while the stream is captured: then it is called
// once a replay. `work` may touch device memory, may block, and must not call the CUDA runtime.
// What it throws is the GPU's failure from then on, as cudaErrorLaunchFailure with that message.
cudaError_t enqueue(cudaStream_t stream, std::string name, std::function<void()> work);

// Queues a kernel; `thread` is what each of its threads does.
cudaError_t launch(std::string name, const Shape& shape, cudaStream_t stream,
                   std::function<void()> thread);

// The order of what is queued from now on. At first that of TRIREME_EMULATION_SEED, or 1.
void set_seed(uint64_t seed);

// Waits for all that is queued and forgets a failure, as a new process would.
void recover();

}  // namespace trireme::emulation
