// Declares plan() for every op. Each overload is defined in the file named after the header of the
// op.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace trireme::ops::cpu {

struct Engine;
using Plan = std::unique_ptr<OpPlan>;
using EnginePtr = std::shared_ptr<Engine>;

#define TRIREME_OP(Descriptor) \
  Plan plan(const Descriptor& op, const EnginePtr& engine, Specs specs);
#include "ops/ops.def"

}  // namespace trireme::ops::cpu
