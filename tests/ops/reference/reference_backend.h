// The reference backend: the simplest loops, in double precision on row-major f64 (labels i32,
// inputs u8, f32 or f64), with which the backends are compared. Runs on the CPU.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace trireme::ops {

std::unique_ptr<Backend> create_reference_backend(Device& device);

}  // namespace trireme::ops
