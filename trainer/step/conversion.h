// Conversions between two element types, planned when first asked for: of gradients on their way
// between ranks, for example.
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
  // Between flat arrays. The backend outlives it; it outlives what it has queued.
  Conversion(ops::Backend& backend, DType from, DType to)
      : backend_(backend), from_(from), to_(to) {}

  // The first call with these arguments plans and allocates, later ones only encode.
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
