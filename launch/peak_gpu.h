// What a GPU reaches at most: the floors under every step's time.
#pragma once

#include "ops/backend.h"

namespace trireme::cli {

// Operations a second (a multiply-add is two) on large matrix products of that type, as the step
// does them, the best of a few.
double measure_gpu_flops(ops::Backend& backend, DType dtype);
// Bytes a second, read and written together, of copies within the device's memory.
double measure_gpu_bandwidth(Device& device);

}  // namespace trireme::cli
