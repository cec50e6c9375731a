// Who plans what in this folder: one overload an operation, in the file named after its header.
#pragma once

#include <memory>
#include <span>

#include "ops/backend.h"

namespace trireme::cuda {

struct Context;
using Specs = std::span<const TensorSpec>;
using Plan = std::unique_ptr<OpPlan>;
using ContextPtr = std::shared_ptr<Context>;

Plan plan(const Conv2dForward& op, const ContextPtr& context, Specs specs);
Plan plan(const Conv2dBackwardData& op, const ContextPtr& context, Specs specs);
Plan plan(const Conv2dBackwardWeights& op, const ContextPtr& context, Specs specs);
Plan plan(const DenseForward& op, const ContextPtr& context, Specs specs);
Plan plan(const DenseBackwardData& op, const ContextPtr& context, Specs specs);
Plan plan(const DenseBackwardWeights& op, const ContextPtr& context, Specs specs);
Plan plan(const ActivationForward& op, const ContextPtr& context, Specs specs);
Plan plan(const ActivationBackward& op, const ContextPtr& context, Specs specs);
Plan plan(const BatchNormStatistics& op, const ContextPtr& context, Specs specs);
Plan plan(const BatchNormForward& op, const ContextPtr& context, Specs specs);
Plan plan(const BatchNormInference& op, const ContextPtr& context, Specs specs);
Plan plan(const BatchNormBackwardSums& op, const ContextPtr& context, Specs specs);
Plan plan(const BatchNormBackward& op, const ContextPtr& context, Specs specs);
Plan plan(const LayerNormForward& op, const ContextPtr& context, Specs specs);
Plan plan(const LayerNormBackward& op, const ContextPtr& context, Specs specs);
Plan plan(const MaxPoolForward& op, const ContextPtr& context, Specs specs);
Plan plan(const MaxPoolBackward& op, const ContextPtr& context, Specs specs);
Plan plan(const AveragePoolForward& op, const ContextPtr& context, Specs specs);
Plan plan(const AveragePoolBackward& op, const ContextPtr& context, Specs specs);
Plan plan(const DropoutForward& op, const ContextPtr& context, Specs specs);
Plan plan(const DropoutBackward& op, const ContextPtr& context, Specs specs);
Plan plan(const Add& op, const ContextPtr& context, Specs specs);
Plan plan(const Concat& op, const ContextPtr& context, Specs specs);
Plan plan(const Split& op, const ContextPtr& context, Specs specs);
Plan plan(const Reorder& op, const ContextPtr& context, Specs specs);
Plan plan(const NormalizeInput& op, const ContextPtr& context, Specs specs);
Plan plan(const SoftmaxCrossEntropy& op, const ContextPtr& context, Specs specs);
Plan plan(const MeanSquaredError& op, const ContextPtr& context, Specs specs);
Plan plan(const SumOfSquares& op, const ContextPtr& context, Specs specs);
Plan plan(const SgdUpdate& op, const ContextPtr& context, Specs specs);
Plan plan(const AdamUpdate& op, const ContextPtr& context, Specs specs);
Plan plan(const ScaleLoss& op, const ContextPtr& context, Specs specs);
Plan plan(const AdjustLossScale& op, const ContextPtr& context, Specs specs);

}  // namespace trireme::cuda
