// Recomputation (activation checkpointing): operations of the forward pass run again in the
// backward pass, so that their outputs need no memory in between. Introduced in "Training Deep Nets
// with Sublinear Memory Cost" (Chen et al., arXiv:1604.06174).
#pragma once

#include <cstddef>
#include <vector>

#include "model/emitter.h"

namespace trireme::model {

// Returns the floating-point operations that a device computes in about the time in which it reads
// or writes a byte. Only decides which operations are cheaper than others.
double flops_per_byte(DeviceKind kind);

// Inserts copies of instructions of the forward pass (the first `forward`) into the backward pass,
// each in front of the first instruction that reads its outputs, until the activations fit into
// `limit` bytes, or until no copy saves memory. Chooses the instructions whose time per byte is
// lowest, and no more than needed. A copy computes bitwise the same outputs. Collectives and
// instructions that write metrics or gradients are never copied; copies do not update running
// statistics.
void recompute(std::vector<Instruction>& instructions, size_t forward, std::vector<Value>& values,
               ops::Backend& backend, size_t limit);

}  // namespace trireme::model
