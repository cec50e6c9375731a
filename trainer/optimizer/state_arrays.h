// The arrays of a training step as named tensors: parameters, running statistics, optimizer state
// and gradients. Code that saves, loads, compares or shows tensors uses StateArrays, so that it
// does not depend on their layout in device memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "model/context.h"
#include "model/parameters.h"
#include "ops/backend.h"

namespace trireme::train {

// Averages of the parameters (optimizer.ema) are saved as optimizer state with this prefix:
// "average.fc.weight".
inline constexpr const char* kAveragePrefix = "average";

class StateArrays {
 public:
  struct Tensor {
    std::string name;      // as in checkpoints: "fc.weight", "velocity.fc.weight"
    TensorSpec spec;       // in device memory: f32, in the layout that the network uses
    void* data = nullptr;  // device memory
  };
  // A flat f32 array in device memory, and its tensors in the order of checkpoints. There may be
  // padding between them.
  struct Array {
    void* data = nullptr;
    int64_t elements = 0;
    std::vector<Tensor> tensors;
  };

  // The arrays of `model` and `backend` must outlive this object. model.gradients may be null.
  StateArrays(const model::Parameters& parameters, ops::Backend& backend,
              const model::ModelArrays& model);
  // Adds an array of optimizer state, such as "velocity". `data` has Parameters::trained_elements
  // elements.
  void add_optimizer_array(const model::Parameters& parameters, const std::string& name,
                           void* data);

  const Array& parameters() const { return model_[0]; }  // including frozen parameters
  const Array& running_stats() const { return model_[1]; }
  const Array& gradients() const { return gradients_; }  // with the names of their parameters
  // Return the contents of the two files of a checkpoint.
  std::span<const Array> model() const { return model_; }  // parameters, then running statistics
  std::span<const Array> optimizer() const { return optimizer_; }

  // Copy one tensor between device memory and `values` in host memory, row-major, with the same
  // number of elements. Block until the copy is done. After put() of parameters, call
  // Step::parameters_changed().
  void get(const Tensor& tensor, std::span<float> values) const;
  void put(const Tensor& tensor, std::span<const float> values) const;

  ops::Backend& backend() const { return *backend_; }

 private:
  ops::Backend* backend_;
  std::array<Array, 2> model_;
  Array gradients_;
  std::vector<Array> optimizer_;
};

}  // namespace trireme::train
