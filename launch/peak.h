// Measures the peak throughput of this machine, which gives a lower bound of the time of a step.
#pragma once

#include "core/dtype.h"
#include "trainer/profile/options.h"

namespace trireme::cli {

// Measures the peaks of this rank's device in the dtype of the network. Collective: all ranks
// measure concurrently, because they also train concurrently.
train::Peaks measure_peaks(const train::Config& config, comm::Communicator& communicator,
                           ops::Backend& backend);

// Measures only the operations per second of this rank. All ranks must measure at the same time.
double measure_rank_flops(const train::Config& config, comm::Communicator& communicator,
                          ops::Backend& backend);

// Returns the operations per second (a multiply-add counts as two) of `threads` threads together in
// multiply-adds between registers: of f32, or of bf16 with f32 sums if `dtype` is bf16 and the CPU
// supports them. Takes about `seconds`.
double measure_peak_flops(int threads, double seconds, DType dtype);

// Returns the bytes per second, read plus written, of `threads` threads together when they copy
// memory that exceeds the caches. Takes about `seconds`.
double measure_copy_bandwidth(int threads, double seconds);

}  // namespace trireme::cli
