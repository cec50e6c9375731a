// The trained arrays as they were at one moment, in host memory, for a thread to write while
// training goes on.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "ops/backend.h"

namespace trireme::train {

// The arrays that a checkpoint is taken of, in device memory; see Parameters.
struct TrainedArrays {
  const model::Parameters& parameters;
  ops::Backend& backend;
  void* values;
  void* running;
  struct Named {
    std::string name;  // "velocity": saved as "velocity.<parameter>"
    void* values;
  };
  std::vector<Named> optimizer;
};

// The files model.safetensors and optimizer.safetensors, byte by byte. Their memory is allocated
// once: however many snapshots are taken, there is room for one.
class Snapshot {
 public:
  // `arrays` stay where they are.
  explicit Snapshot(TrainedArrays arrays);

  // Copies the arrays, in canonical order, over what was there.
  void take();
  std::span<const std::byte> model() const;
  std::span<const std::byte> optimizer() const;

 private:
  TrainedArrays arrays_;
  std::string model_header_;
  std::string optimizer_header_;
  size_t model_bytes_ = 0;      // of the file
  size_t optimizer_begin_ = 0;  // in the memory
  Buffer memory_;
};

}  // namespace trireme::train
