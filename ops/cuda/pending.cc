// Operations whose CUDA plans are still to be written.
#include "ops/cuda/libraries.h"
#include "ops/cuda/plans.h"

namespace trireme::cuda {

#define PENDING(Name) \
  __attribute__((weak)) Plan plan(const Name&, const ContextPtr&, Specs) { throw Error("not written yet"); }
PENDING(Conv2dForward)
PENDING(Conv2dBackwardData)
PENDING(Conv2dBackwardWeights)
PENDING(DenseForward)
PENDING(DenseBackwardData)
PENDING(DenseBackwardWeights)
PENDING(ActivationForward)
PENDING(ActivationBackward)
PENDING(BatchNormStatistics)
PENDING(BatchNormForward)
PENDING(BatchNormInference)
PENDING(BatchNormBackwardSums)
PENDING(BatchNormBackward)
PENDING(LayerNormForward)
PENDING(LayerNormBackward)
PENDING(MaxPoolForward)
PENDING(MaxPoolBackward)
PENDING(AveragePoolForward)
PENDING(AveragePoolBackward)
PENDING(DropoutForward)
PENDING(DropoutBackward)
PENDING(Add)
PENDING(Concat)
PENDING(Split)
PENDING(Reorder)
PENDING(NormalizeInput)
PENDING(SoftmaxCrossEntropy)
PENDING(MeanSquaredError)
PENDING(SumOfSquares)
PENDING(SgdUpdate)
PENDING(AdamUpdate)

class Libraries {};
__attribute__((weak)) std::shared_ptr<Libraries> open_libraries(Device&, const CudaOptions&) { return nullptr; }

}  // namespace trireme::cuda
