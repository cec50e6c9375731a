// The arithmetic of an all-reduce in shared memory.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace trireme::comm::mpi {

// Sums `count` elements over the inputs, in the order of the inputs, and writes the result to every
// output. Each input is read once; an output may be one of the inputs. Supports f32, f64, i64, and
// f16 and bf16, which are summed in f32 and rounded once. Throws CommError for other dtypes.
void sum(DType dtype, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
         int64_t count);

}  // namespace trireme::comm::mpi
