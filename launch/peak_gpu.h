// Measures the peak throughput of a GPU, which bounds the time of a step from below.
#pragma once

#include "ops/backend.h"

namespace trireme::cli {

// Returns the operations per second (a multiply-add is two) of the fastest of several large matrix
// products, computed as in a step.
double measure_gpu_flops(ops::Backend& backend, DType dtype);
// Returns the bytes per second, read plus written, of copies within the device's memory.
double measure_gpu_bandwidth(Device& device);

}  // namespace trireme::cli
