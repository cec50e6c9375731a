// A copy of the training state in host memory, which a thread writes while training continues.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trainer/optimizer/state_arrays.h"

namespace trireme::train {

// The contents of model.safetensors and optimizer.safetensors. Memory for one snapshot is allocated
// once and reused.
class Snapshot {
 public:
  explicit Snapshot(StateArrays arrays);

  // Replaces the contents with a copy of the current tensors, in canonical form. If tensors are
  // distributed, the other ranks must call StateArrays::send_parts().
  void take();
  std::span<const std::byte> model() const;
  std::span<const std::byte> optimizer() const;

 private:
  StateArrays arrays_;
  std::string model_header_;
  std::string optimizer_header_;
  size_t model_bytes_ = 0;      // size of model.safetensors
  size_t optimizer_begin_ = 0;  // offset in memory_
  Buffer memory_;
};

}  // namespace trireme::train
