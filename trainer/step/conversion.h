// Casts flat arrays from one element type to another, for example gradients to and from the type in
// which they are sent between ranks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "ops/backend.h"

namespace trireme::train {

class Conversion {
 public:
  // The backend must outlive this object, which must outlive the work that it has queued.
  Conversion(ops::Backend& backend, DType from, DType to)
      : backend_(backend), from_(from), to_(to) {}

  // Queues a cast of `elements` elements. The first call with given arguments plans and allocates;
  // later calls only encode.
  void encode(const void* from, void* to, int64_t elements, Stream& stream);

 private:
  struct Planned {
    std::unique_ptr<ops::OpPlan> plan;
    std::array<void*, ops::Reorder::kArgs> args;
    Buffer scratch;
  };

  ops::Backend& backend_;
  DType from_;
  DType to_;
  std::map<std::tuple<const void*, void*, int64_t>, Planned> planned_;
};

}  // namespace trireme::train
