// Lets tests delay the fake of cuDNN.
#pragma once

#include <atomic>

namespace trireme::emulation {

// Additional duration of convolutions.
struct ConvolutionDelays {
  std::atomic<int> mixed_ms{0};  // if the result has another dtype than the inputs
  std::atomic<int> uniform_ms{0};
  std::atomic<int> few_channels_ms{0};  // if x has other numbers of channels than multiples of 8
};
ConvolutionDelays& convolution_delays();

}  // namespace trireme::emulation
