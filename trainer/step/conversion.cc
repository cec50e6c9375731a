#include "trainer/step/conversion.h"

namespace trireme::train {

void Conversion::encode(const void* from, void* to, int64_t elements, Stream& stream) {
  Planned& planned = planned_[{from, to, elements}];
  if (!planned.plan) {
    const TensorSpec specs[] = {{from_, {elements}, Layout::row_major()},
                                {to_, {elements}, Layout::row_major()}};
    planned.plan = backend_.plan(ops::Reorder{}, specs);
    planned.args = {const_cast<void*>(from), to};
    planned.scratch = backend_.device().allocate(planned.plan->scratch_bytes());
  }
  planned.plan->encode(stream, planned.args, planned.scratch.data());
}

}  // namespace trireme::train
