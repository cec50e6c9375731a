#include "ops/op.h"

#include <utility>

namespace trireme::ops {

// Not inline, since there are hundreds of derived classes.
OpPlan::OpPlan(std::vector<TensorSpec> specs) : specs_(std::move(specs)) {}
OpPlan::~OpPlan() = default;

}  // namespace trireme::ops
