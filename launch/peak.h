// What the processor could do at most: the floor under every step's time.
#pragma once

#include "core/dtype.h"

namespace trireme {

// Operations a second (a multiply-add is two) that so many threads reach together on multiply-adds
// between registers: of f32, or of bf16 into f32 where the processor has them. Takes about
// `seconds`.
double measure_peak_flops(int threads, double seconds, DType dtype);

}  // namespace trireme
