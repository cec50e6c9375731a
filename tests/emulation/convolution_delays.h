// What tests can make the stand-in of cuDNN do.
#pragma once

#include <atomic>

namespace trireme::emulation {

// How much longer convolutions take.
struct ConvolutionDelays {
  std::atomic<int> mixed_ms{0};  // whose result is of another type
  std::atomic<int> uniform_ms{0};
};
ConvolutionDelays& convolution_delays();

}  // namespace trireme::emulation
