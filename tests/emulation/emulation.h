// The interface of the emulated GPU for fakes of libraries and for tests; programs use the CUDA
// runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

#include "threads.h"

namespace trireme::emulation {

// Queues work that a library would run on the GPU. If the stream is captured, the work runs once in
// each replay. `work` may access device memory, but must not call the CUDA runtime. If it throws,
// all later calls fail with cudaErrorLaunchFailure and the message of the exception. Work that
// `communicates` may block: meanwhile, other work runs that does not communicate.
cudaError_t enqueue(cudaStream_t stream, std::string name, std::function<void()> work,
                    bool communicates = false);

// Queues a kernel; `thread` is the work of each thread.
cudaError_t launch(std::string name, const Shape& shape, cudaStream_t stream,
                   std::function<void()> thread);

// Sets the seed that determines the order of work queued from now on. With 0, all work runs in the
// order of the calls. Initially TRIREME_EMULATION_SEED, or 1.
void set_seed(uint64_t seed);

// Waits for all queued work and clears a failure, as if in a new process.
void recover();

}  // namespace trireme::emulation
