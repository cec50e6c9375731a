// The arithmetic of an all-reduce in shared memory.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace trireme::comm::mpi {

// Adds `count` elements over the inputs, in the order of the inputs, and writes the sum to every
// output. Each input is read once; an output may be one of the inputs. f32, f64, i64; f16 and bf16,
// added up as f32 and rounded once.
void sum(DType dtype, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
         int64_t count);

}  // namespace trireme::comm::mpi
