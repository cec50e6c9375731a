// The interface through which layers use collective operations. The trainer passes in a
// communicator that implements it, so that the model does not depend on comm/.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"

namespace trireme {

// Identifies the purpose of a call in error messages.
struct CallTag {
  int32_t bucket = -1;  // index of the gradient bucket; -1 if the call is not for gradients
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int size() const = 0;
  // Replaces `data` with its sum over all ranks, which is bitwise identical on each of them. All
  // ranks must make the same calls in the same order, with the same count and dtype.
  virtual void all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream,
                              CallTag tag = {}) = 0;
};

}  // namespace trireme
