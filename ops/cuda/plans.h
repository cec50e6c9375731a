// Declares plan() for every op. Each overload is defined in the file named after the header of the
// op.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace trireme::ops::cuda {

struct Context;
using Plan = std::unique_ptr<OpPlan>;
using ContextPtr = std::shared_ptr<Context>;

#define TRIREME_OP(Descriptor) \
  Plan plan(const Descriptor& op, const ContextPtr& context, Specs specs);
#include "ops/ops.def"

}  // namespace trireme::ops::cuda
