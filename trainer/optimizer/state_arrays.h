// What training carries from step to step, as named tensors: parameters, running values (of batch
// norm), what the optimizer remembers, and the gradients. Whatever saves, loads, compares or shows
// tensors goes through here, and does not know where they lie in device memory.
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

// Averages of the parameters (optimizer.ema) are saved like what the optimizer remembers:
// "average.fc.weight".
inline constexpr const char* kAverage = "average";

class StateArrays {
 public:
  struct Tensor {
    std::string name;      // as in checkpoints: "fc.weight", "velocity.fc.weight"
    TensorSpec spec;       // as in device memory: f32, in the layout that the network wants
    void* data = nullptr;  // device memory
  };
  // A flat array of f32 in device memory: its tensors in checkpoint order, with padding between
  // them.
  struct Array {
    void* data = nullptr;
    int64_t elements = 0;
    std::vector<Tensor> tensors;
  };

  // The arrays of `model` outlive it; gradients may be absent. `backend` too.
  StateArrays(const model::Parameters& parameters, ops::Backend& backend,
              const model::ModelArrays& model);
  // Adds what the optimizer remembers of each trained parameter: `name` is "velocity", `data` has
  // Parameters::trained_elements.
  void add_optimizer_array(const model::Parameters& parameters, const std::string& name,
                           void* data);

  const Array& parameters() const { return model_[0]; }  // frozen ones included
  const Array& running_stats() const { return model_[1]; }
  const Array& gradients() const { return gradients_; }  // named as their parameters are
  // What the two files of a checkpoint hold.
  std::span<const Array> model() const { return model_; }  // parameters, then running values
  std::span<const Array> optimizer() const { return optimizer_; }

  // Copies one tensor between device memory and `values`, row-major in host memory, which has as
  // many elements. Blocks. Whoever puts parameters calls Step::parameters_changed() at the end.
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
