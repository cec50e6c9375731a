// What the processor could do at most: the floor under every step's time.
#pragma once

namespace trireme {

// Float32 operations a second (a multiply-add is two) that so many threads reach together on
// multiply-adds between registers. Takes about `seconds`.
double measure_peak_flops(int threads, double seconds);

}  // namespace trireme
