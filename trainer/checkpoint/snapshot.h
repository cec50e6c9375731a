// The state of training at one moment, in host memory, for a thread to write while training goes
// on.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trainer/optimizer/state_arrays.h"

namespace trireme::train {

// The files model.safetensors and optimizer.safetensors, byte by byte. Their memory is allocated
// once: however many snapshots are taken, there is room for one.
class Snapshot {
 public:
  explicit Snapshot(StateArrays arrays);

  // Copies the tensors, in canonical form, over what was there.
  void take();
  std::span<const std::byte> model() const;
  std::span<const std::byte> optimizer() const;

 private:
  StateArrays arrays_;
  std::string model_header_;
  std::string optimizer_header_;
  size_t model_bytes_ = 0;      // of the file
  size_t optimizer_begin_ = 0;  // in the memory
  Buffer memory_;
};

}  // namespace trireme::train
