// What the machine could do at most: the floors under every step's time.
#pragma once

#include "core/dtype.h"
#include "trainer/profile/options.h"

namespace trireme::cli {

// Of this rank's device, in what the network computes in. All ranks call it together, and measure
// at once, as they compute at once.
train::Peaks measure_peaks(const train::Config& config, comm::Communicator& communicator,
                           ops::Backend& backend);

// Operations a second (a multiply-add is two) that so many threads reach together on multiply-adds
// between registers: of f32, or of bf16 into f32 where the processor has them. Takes about
// `seconds`.
double measure_peak_flops(int threads, double seconds, DType dtype);

// Bytes a second, read and written together, that so many threads reach together on copies between
// places in memory that no cache holds. Takes about `seconds`.
double measure_copy_bandwidth(int threads, double seconds);

}  // namespace trireme::cli
