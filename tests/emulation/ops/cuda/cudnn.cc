// A fake of cuDNN with plain loops.
#include "ops/cuda/cudnn.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "convolution_delays.h"
#include "core/cuda/cuda.h"
#include "emulation.h"
#include "ops/cuda/values.h"

namespace trireme::ops::cuda {
namespace {

// Calls f(i, j, k) for every product x[i] * weight[j] that is part of y[k].
template <class F>
void each_product(const Convolution& c, F f) {
  const Conv2dGeometry& g = c.geometry;
  const int64_t inputs = c.weight[1], outputs = c.weight[0] / g.groups;
  for (int64_t n = 0; n < c.y[0]; ++n) {
    for (int64_t row = 0; row < c.y[2]; ++row) {
      for (int64_t column = 0; column < c.y[3]; ++column) {
        const int64_t y = (n * c.y[2] + row) * c.y[3] + column;
        for (int64_t p = 0; p < c.weight[2]; ++p) {
          const int64_t h = row * g.stride[0] - g.padding[0] + p * g.dilation[0];
          if (h < 0 || h >= c.x[2]) continue;
          for (int64_t q = 0; q < c.weight[3]; ++q) {
            const int64_t w = column * g.stride[1] - g.padding[1] + q * g.dilation[1];
            if (w < 0 || w >= c.x[3]) continue;
            const int64_t x = (n * c.x[2] + h) * c.x[3] + w;
            for (int64_t o = 0; o < c.y[1]; ++o) {
              const int64_t weight = ((o * c.weight[2] + p) * c.weight[3] + q) * inputs;
              for (int64_t i = 0; i < inputs; ++i) {
                f(x * c.x[1] + o / outputs * inputs + i, weight + i, y * c.y[1] + o);
              }
            }
          }
        }
      }
    }
  }
}

class Loops final : public Algorithm {
 public:
  explicit Loops(const Convolution& convolution) : c_(convolution) {}

  size_t workspace_bytes() const override { return 1; }

  void run(Stream& stream, Args args, void* workspace) const override {
    for (const void* arg : args) require_aligned(arg, kTensorAlignment);
    require_aligned(workspace, kDeviceAlignment);
    trireme::cuda::check(
        emulation::enqueue(trireme::cuda::handle(stream), "convolution",
                           [c = c_, x = args[0], weight = args[1], y = args[2], bias = args[3]] {
                             delay(c);
                             convolve(c, x, weight, y, bias);
                           }),
        "convolution");
  }

 private:
  static void delay(const Convolution& c) {
    const auto& delays = emulation::convolution_delays();
    std::this_thread::sleep_for(
        std::chrono::milliseconds((c.in == c.out ? delays.uniform_ms : delays.mixed_ms) +
                                  (c.x[1] % 8 == 0 ? 0 : delays.few_channels_ms.load())));
  }

  static void convolve(const Convolution& c, void* x_memory, void* weight_memory, void* y_memory,
                       const void* bias_memory) {
    const auto values = [&](const Shape& shape, const void* memory, ConvolutionPass written) {
      const int64_t count = shape.elements();
      return c.pass == written ? Values(static_cast<size_t>(count)) : read(memory, c.in, count);
    };
    Values x = values(c.x, x_memory, ConvolutionPass::kBackwardData);
    Values weight = values(c.weight, weight_memory, ConvolutionPass::kBackwardWeights);
    Values y = values(c.y, y_memory, ConvolutionPass::kForward);
    switch (c.pass) {
      case ConvolutionPass::kForward: {
        each_product(c, [&](auto i, auto j, auto k) { y[k] += x[i] * weight[j]; });
        const Values bias = c.bias ? read(bias_memory, *c.bias, c.y[1]) : Values{0};
        for (size_t k = 0; k < y.size(); ++k) {
          y[k] += bias[k % bias.size()];
          if (c.relu) y[k] = std::max(y[k], 0.0);
        }
        return write(y, c.out, y_memory);
      }
      case ConvolutionPass::kBackwardData:
        each_product(c, [&](auto i, auto j, auto k) { x[i] += y[k] * weight[j]; });
        return write(x, c.out, x_memory);
      case ConvolutionPass::kBackwardWeights:
        each_product(c, [&](auto i, auto j, auto k) { weight[j] += y[k] * x[i]; });
        return write(weight, c.out, weight_memory);
    }
  }

  Convolution c_;
};

// As cuDNN 9.19 on an H200, which has few engines for tensors with different dtypes.
bool is_supported(const Convolution& c) {
  if (c.bias && *c.bias != c.in) return false;
  return c.in == c.out || (c.pass == ConvolutionPass::kBackwardWeights && c.x[1] % 8 == 0 &&
                           c.y[1] % 8 == 0 && c.geometry.groups == 1);
}

}  // namespace

AlgorithmPtr find_convolution(const Context&, const Convolution& convolution) {
  if (!is_supported(convolution)) throw Unsupported("cuDNN would not support this convolution");
  return std::make_shared<Loops>(convolution);
}

}  // namespace trireme::ops::cuda

namespace trireme::emulation {

ConvolutionDelays& convolution_delays() {
  static ConvolutionDelays delays;
  return delays;
}

}  // namespace trireme::emulation
