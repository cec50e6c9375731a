// The arrays of a training step as named tensors: parameters, running statistics, optimizer state
// and gradients. Code that saves, loads, compares or shows tensors uses StateArrays, so that it
// does not depend on their layout in device memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
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
  // Elements [begin, end) of a tensor as it lies in device memory.
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;
  };
  struct Tensor {
    std::string name;      // as in checkpoints: "fc.weight", "velocity.fc.weight"
    TensorSpec spec;       // in device memory: f32, in the layout that the network uses
    void* data = nullptr;  // device memory; if the tensor is sharded, that of this rank's part
    std::vector<Part> parts = {};  // by rank, if the tensor is sharded
  };
  // A flat f32 array in device memory, and its tensors in the order of checkpoints. There may be
  // padding between them. Each rank has all of an array or, if it is sharded, a part of each tensor.
  struct Array {
    void* data = nullptr;
    int64_t elements = 0;
    std::vector<Tensor> tensors;
    bool sharded = false;
  };

  // The arrays of `model` and `backend` must outlive this object. model.gradients may be null.
  StateArrays(const model::Parameters& parameters, ops::Backend& backend,
              const model::ModelArrays& model);
  // Adds an array of optimizer state, such as "velocity". `data` has Parameters::trained_elements
  // elements.
  void add_optimizer_array(const model::Parameters& parameters, const std::string& name,
                           void* data);
  // Adds an array of which this rank has a shard, with slot_elements() elements. `communicator`
  // connects the ranks that have the others, in the order of shards, over device memory. It and
  // `stream` must outlive this object and its copies.
  void add_sharded_array(const model::Parameters& parameters, const std::string& name, void* data,
                         comm::Communicator& communicator, Stream& stream);

  const Array& parameters() const { return model_[0]; }  // including frozen parameters
  const Array& running_stats() const { return model_[1]; }
  const Array& gradients() const { return gradients_; }  // with the names of their parameters
  // Return the contents of the two files of a checkpoint.
  std::span<const Array> model() const { return model_; }  // parameters, then running statistics
  std::span<const Array> optimizer() const { return optimizer_; }

  // Copy one tensor between device memory and `values` in host memory, row-major, with the same
  // number of elements. Block until the copy is done. After put() of parameters, call
  // Step::parameters_changed(). If the tensor is sharded, all ranks must call them; values are those
  // of rank 0, and ignored on other ranks. Rank 0 then needs device memory for the whole tensor.
  void get(const Tensor& tensor, std::span<float> values) const;
  void put(const Tensor& tensor, std::span<const float> values) const;
  // Take part in get() and put() of all sharded tensors. To be called on all ranks but rank 0.
  void send_shards() const;
  void receive_shards() const;
  bool has_shards() const;

  ops::Backend& backend() const { return *backend_; }

 private:
  void collect(const Tensor& tensor, std::span<float> values) const;
  void distribute(const Tensor& tensor, std::span<const float> values) const;

  ops::Backend* backend_;
  comm::Communicator* communicator_ = nullptr;  // of the sharded arrays, if there are any
  Stream* stream_ = nullptr;
  std::array<Array, 2> model_;
  Array gradients_;
  std::vector<Array> optimizer_;
};

}  // namespace trireme::train
