#include "ops/plan_in_chunks.h"
#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

// All rows are one chunk.
Plan plan(const LinearCrossEntropy& op, Specs specs) {
  LinearCrossEntropy whole = op;
  whole.chunk_rows = specs[LinearCrossEntropy::kX].shape[0];
  return plan_in_chunks(whole, specs, LinearCrossEntropy::kChunkBytes,
                        [](const auto& part, ops::Specs of_part) {
                          return plan(part, {of_part.begin(), of_part.end()});
                        });
}

}  // namespace trireme::ops::reference
