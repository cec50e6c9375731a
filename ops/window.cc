#include "ops/window.h"

#include <fmt/format.h>

namespace trireme::ops {

void check_windows(const Checker& c, int x, int y, int64_t channels,
                   const std::array<int64_t, 2>& kernel, const std::array<int64_t, 2>& stride,
                   const std::array<int64_t, 2>& padding, const std::array<int64_t, 2>& dilation) {
  const Shape& in = c.shape(x);
  const Shape out{in[0], channels, windows(in[2], kernel[0], stride[0], padding[0], dilation[0]),
                  windows(in[3], kernel[1], stride[1], padding[1], dilation[1])};
  if (out[2] < 1 || out[3] < 1) {
    c.refuse(fmt::format("the window does not fit into {} {}", c.name(x), in.to_string()));
  }
  c.is(y, out);
}

}  // namespace trireme::ops
