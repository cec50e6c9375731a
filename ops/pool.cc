#include "ops/pool.h"

#include <fmt/format.h>

#include "ops/window.h"

namespace trireme::ops {
namespace {

// Checks x and y, or their gradients.
void check_pool(const Checker& c, const PoolGeometry& g, int x, int y) {
  c.rank(x, 4);
  c.at_least(1, g.kernel, "kernel");
  c.at_least(1, g.stride, "stride");
  c.at_least(0, g.padding, "padding");
  for (size_t i = 0; i < 2; ++i) {
    // Otherwise a window could contain only padding.
    if (g.padding[i] >= g.kernel[i]) {
      c.refuse(
          fmt::format("padding {} must be less than the kernel {}", g.padding[i], g.kernel[i]));
    }
  }
  check_windows(c, x, y, c.shape(x)[1], g.kernel, g.stride, g.padding);
}

}  // namespace

const OpInfo MaxPoolForward::kInfo{
    .name = "max_pool_forward",
    .args = {{"x", Use::kIn}, {"y", Use::kOut}, {"workspace", Use::kOut, kOptional}}};
void MaxPoolForward::check(const Checker& c) const { check_pool(c, geometry, kX, kY); }

const OpInfo MaxPoolBackward::kInfo{
    .name = "max_pool_backward",
    .args = {{"dy", Use::kIn}, {"workspace", Use::kIn}, {"dx", Use::kOut}}};
void MaxPoolBackward::check(const Checker& c) const { check_pool(c, geometry, kDx, kDy); }

const OpInfo AveragePoolForward::kInfo{.name = "average_pool_forward",
                                       .args = {{"x", Use::kIn}, {"y", Use::kOut}}};
void AveragePoolForward::check(const Checker& c) const { check_pool(c, geometry, kX, kY); }

const OpInfo AveragePoolBackward::kInfo{.name = "average_pool_backward",
                                        .args = {{"dy", Use::kIn}, {"dx", Use::kOut}}};
void AveragePoolBackward::check(const Checker& c) const { check_pool(c, geometry, kDx, kDy); }

}  // namespace trireme::ops
