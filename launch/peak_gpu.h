// Measures the peak throughput of a GPU, which gives a lower bound of the time of a step.
#pragma once

#include "ops/backend.h"

namespace trireme::cli {

// Returns the operations per second (a multiply-add counts as two) of the fastest of several large
// matrix products, computed as in a step.
double measure_gpu_flops(ops::Backend& backend, DType dtype);
// Returns the bytes per second, read plus written, of copies within the device's memory.
double measure_gpu_bandwidth(Device& device);

}  // namespace trireme::cli
