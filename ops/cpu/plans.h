// Who plans what in this folder: one overload an operation, in the file named after its header.
#pragma once

#include <memory>
#include <span>

#include "ops/backend.h"

namespace trireme::cpu {

struct Engine;
using Specs = std::span<const TensorSpec>;
using Plan = std::unique_ptr<OpPlan>;
using EnginePtr = std::shared_ptr<Engine>;

Plan plan(const Conv2dForward& op, const EnginePtr& engine, Specs specs);
Plan plan(const Conv2dBackwardData& op, const EnginePtr& engine, Specs specs);
Plan plan(const Conv2dBackwardWeights& op, const EnginePtr& engine, Specs specs);
Plan plan(const DenseForward& op, const EnginePtr& engine, Specs specs);
Plan plan(const DenseBackwardData& op, const EnginePtr& engine, Specs specs);
Plan plan(const DenseBackwardWeights& op, const EnginePtr& engine, Specs specs);
Plan plan(const ActivationForward& op, const EnginePtr& engine, Specs specs);
Plan plan(const ActivationBackward& op, const EnginePtr& engine, Specs specs);
Plan plan(const BatchNormStatistics& op, const EnginePtr& engine, Specs specs);
Plan plan(const BatchNormForward& op, const EnginePtr& engine, Specs specs);
Plan plan(const BatchNormInference& op, const EnginePtr& engine, Specs specs);
Plan plan(const BatchNormBackwardSums& op, const EnginePtr& engine, Specs specs);
Plan plan(const BatchNormBackward& op, const EnginePtr& engine, Specs specs);
Plan plan(const LayerNormForward& op, const EnginePtr& engine, Specs specs);
Plan plan(const LayerNormBackward& op, const EnginePtr& engine, Specs specs);
Plan plan(const MaxPoolForward& op, const EnginePtr& engine, Specs specs);
Plan plan(const MaxPoolBackward& op, const EnginePtr& engine, Specs specs);
Plan plan(const AveragePoolForward& op, const EnginePtr& engine, Specs specs);
Plan plan(const AveragePoolBackward& op, const EnginePtr& engine, Specs specs);
Plan plan(const DropoutForward& op, const EnginePtr& engine, Specs specs);
Plan plan(const DropoutBackward& op, const EnginePtr& engine, Specs specs);
Plan plan(const Add& op, const EnginePtr& engine, Specs specs);
Plan plan(const Concat& op, const EnginePtr& engine, Specs specs);
Plan plan(const Split& op, const EnginePtr& engine, Specs specs);
Plan plan(const Reorder& op, const EnginePtr& engine, Specs specs);
Plan plan(const NormalizeInput& op, const EnginePtr& engine, Specs specs);
Plan plan(const SoftmaxCrossEntropy& op, const EnginePtr& engine, Specs specs);
Plan plan(const MeanSquaredError& op, const EnginePtr& engine, Specs specs);
Plan plan(const SumOfSquares& op, const EnginePtr& engine, Specs specs);
Plan plan(const SgdUpdate& op, const EnginePtr& engine, Specs specs);
Plan plan(const AdamUpdate& op, const EnginePtr& engine, Specs specs);
Plan plan(const ScaleLoss& op, const EnginePtr& engine, Specs specs);
Plan plan(const AdjustLossScale& op, const EnginePtr& engine, Specs specs);

}  // namespace trireme::cpu
