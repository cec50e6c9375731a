// Plans of activation functions for other ops, which have their tensors at other positions.
#pragma once

#include "ops/activation.h"
#include "ops/cpu/dnnl.h"
#include "ops/cpu/plans.h"

namespace trireme::ops::cpu {

// Return the plans of ActivationForward and ActivationBackward for the tensors at these positions
// of `specs`.
Plan plan_activation(const EnginePtr& engine, Activation activation, std::vector<TensorSpec> specs,
                     int x, int y);
Plan plan_activation_gradient(const EnginePtr& engine, Activation activation,
                              std::vector<TensorSpec> specs, int saved, int dy, int dx);

}  // namespace trireme::ops::cpu
