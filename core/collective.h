// What an operation inside the model may ask of the other ranks; the communicator that does it is
// handed in from above.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"

namespace trireme {

// What a call concerns, for messages about it.
struct CallTag {
  int32_t bucket = -1;  // of gradients; -1: something else
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int size() const = 0;
  // In place: every rank ends with the sum over ranks, bitwise the same on each. All ranks call in
  // the same order with the same count.
  virtual void all_reduce_sum(void* data, int64_t count, DType dtype, Stream& stream,
                              CallTag tag = {}) = 0;
};

}  // namespace trireme
