// Measures the peak throughput of this machine, which bounds the time of a step from below.
#pragma once

#include "core/dtype.h"
#include "trainer/profile/options.h"

namespace trireme::cli {

// Measures the peaks of this rank's device in the data type of the network. A collective: all ranks
// measure concurrently, as they also train concurrently.
train::Peaks measure_peaks(const train::Config& config, comm::Communicator& communicator,
                           ops::Backend& backend);

// Returns the operations per second (a multiply-add is two) of `threads` threads together on
// multiply-adds between registers: of f32, or of bf16 with f32 sums if the CPU supports them. Takes
// about `seconds`.
double measure_peak_flops(int threads, double seconds, DType dtype);

// Returns the bytes per second, read plus written, of `threads` threads together on copies of
// memory that exceeds the caches. Takes about `seconds`.
double measure_copy_bandwidth(int threads, double seconds);

}  // namespace trireme::cli
