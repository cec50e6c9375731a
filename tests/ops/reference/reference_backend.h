// The plainest loops, in double precision on row-major f64 (labels i32, inputs u8, f32 or f64):
// what the backends are held against. Runs on the CPU.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace trireme::ops {

std::unique_ptr<Backend> create_reference_backend(Device& device);

}  // namespace trireme::ops
