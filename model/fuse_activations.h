// Fuses dense layers with activations whose derivatives need their input, such as GELU. Unlike the
// fusion of layers (passes/passes.h), it works on operations, and knows which of them are needed.
#pragma once

#include <cstddef>
#include <vector>

#include "model/emitter.h"

namespace trireme::model {

// Replaces a product followed by the activation that reads it, and in the backward pass a product
// followed by the gradient of the activation that reads it, by one operation each. The first
// `forward` instructions are the forward pass; updates their number. On the CPU, products whose
// results are needed, too, are left alone.
void fuse_activations(std::vector<Instruction>& instructions, size_t& forward,
                      std::vector<Value>& values, ops::Backend& backend);

}  // namespace trireme::model
