// The arrays of a training step as named tensors: parameters, running statistics, optimizer state
// and gradients. Code that saves, loads, compares or shows tensors uses StateArrays, so that it
// does not depend on their layout in device memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/tensor.h"
#include "model/context.h"
#include "model/parameters.h"
#include "ops/backend.h"
#include "trainer/optimizer/shard.h"

namespace trireme::train {

// Averages of the parameters (optimizer.ema) are saved as optimizer state with this prefix:
// "average.fc.weight".
inline constexpr const char* kAveragePrefix = "average";
// States that recurrent layers carry to the next batch are, too: "carried.rnn.l0".
inline constexpr const char* kCarriedPrefix = "carried";

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
    void* data = nullptr;  // device memory of what this rank has; null if it has nothing
    // What each rank has; empty if every rank has all of the tensor. Several ranks may have the
    // same elements.
    std::vector<Part> parts = {};
  };
  // A flat f32 array in the device memory of this rank, with padding between tensors, and all
  // tensors of the network in the order of checkpoints.
  struct Array {
    void* data = nullptr;
    int64_t elements = 0;
    std::vector<Tensor> tensors = {};
    std::string prefix = {};  // of the tensors' names, in front of those of the parameters
    bool sharded = false;     // replicas have different elements (ZeRO, rows of the batch)
    // Returns whether ranks have different parts of the tensors.
    bool is_distributed() const { return !tensors.empty() && !tensors.front().parts.empty(); }
  };

  // The arrays of `model` and `backend` must outlive this object. model.gradients may be null.
  StateArrays(const model::Parameters& parameters, ops::Backend& backend,
              const model::ModelArrays& model);
  // Adds an array of optimizer state, such as "velocity". `data` has Parameters::trained_elements
  // elements.
  void add_optimizer_array(const model::Parameters& parameters, const std::string& name,
                           void* data);
  // Adds an array of which this rank has a shard, with slot_elements() elements.
  void add_shard(const model::Parameters& parameters, const std::string& name, void* data,
                 Shard shard);
  // Adds states that recurrent layers carry to the next batch, which lie in `data`.
  void add_carried(std::vector<Tensor> tensors, void* data, int64_t elements);
  // Exchanges which rank has what, if ranks have different shards or pipeline stages (then
  // `has_stages` is true on all of them, also on one that has all parameters). `world`
  // connects all ranks over host memory, `communicator` over device memory. `work` is device memory
  // that get() and put() may overwrite. It, `communicator` and `stream` must outlive this object
  // and its copies. Call it after all arrays have been added. All ranks must call it together.
  void distribute(const model::Parameters& parameters, comm::Communicator& world,
                  comm::Communicator& communicator, bool has_stages, Stream& stream,
                  std::span<std::byte> work);

  const Array& parameters() const { return model_[0]; }  // including frozen parameters
  const Array& running_stats() const { return model_[1]; }
  const Array& gradients() const { return gradients_; }  // with the names of their parameters
  // Return the contents of the two files of a checkpoint.
  std::span<const Array> model() const { return model_; }  // parameters, then running statistics
  std::span<const Array> optimizer() const { return optimizer_; }

  // Copy one tensor between device memory and `values` in host memory, row-major, with the same
  // number of elements. Block until the copy is done. After put() of parameters, call
  // Step::parameters_changed(). If the tensor is distributed, all ranks must call them; values are
  // those of rank 0, and ignored on other ranks. Rank 0 then has the whole tensor in device memory:
  // in `work` (see distribute()) or, if that is smaller, in memory allocated for the call.
  void get(const Tensor& tensor, std::span<float> values) const;
  void put(const Tensor& tensor, std::span<const float> values) const;
  // Returns whether this rank has all of the tensor.
  bool has(const Tensor& tensor) const;
  // Copies a tensor that this rank has. Only this rank needs to call it.
  void get_own(const Tensor& tensor, std::span<float> values) const;
  // Takes part in get() of all distributed tensors. To be called on all ranks but rank 0.
  void send_parts() const;
  // Calls put() for the distributed tensors whose names are listed, in the order of checkpoints.
  // `read` returns their values on rank 0. All ranks must call it.
  using Read = std::function<std::vector<float>(const Tensor&)>;
  void put_parts(std::span<const std::string> names, const Read& read) const;
  // Returns the names of all distributed tensors of these arrays.
  static std::vector<std::string> distributed_names(std::span<const Array> arrays);
  bool is_distributed() const;
  // Empties parts such that the others cover each element once. `parts` are in the order of the
  // ranks; those of each pipeline stage that has the tensor cover it.
  static std::vector<Part> without_repetitions(std::vector<Part> parts);

  ops::Backend& backend() const { return *backend_; }

 private:
  // Returns device memory for the whole tensor, which `own` keeps if it had to be allocated.
  float* whole(const Tensor& tensor, Buffer& own) const;
  void collect(const Tensor& tensor, std::span<float> values) const;
  void scatter(const Tensor& tensor, std::span<const float> values) const;
  std::vector<Array*> all_arrays();

  ops::Backend* backend_;
  comm::Communicator* communicator_ = nullptr;  // set if tensors are distributed
  Stream* stream_ = nullptr;
  std::span<std::byte> work_;
  std::array<Array, 2> model_;
  Array gradients_;
  std::vector<Array> optimizer_;
};

}  // namespace trireme::train
