// The flat device arrays of the model on this rank, except gradients: parameters, their averages,
// low-precision copies, running statistics and activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/communicator.h"
#include "model/context.h"
#include "ops/backend.h"

namespace trireme::train {

class StepArrays {
 public:
  // Allocates the arrays, including averages of the parameters if `averages` (optimizer.ema).
  // Values are undefined until initialize() or a checkpoint sets them. All references must outlive
  // this object. With `communicator`, arrays that the optimizer updates are allocated there, so
  // that ranks can exchange their parts of them; all ranks must then call it together, and destroy
  // it together.
  StepArrays(const model::Parameters& parameters, ops::Backend& backend, size_t activation_bytes,
             bool averages, comm::Communicator* communicator = nullptr);

  // Sets the initial parameters, running statistics and averages, a pure function of the seed.
  // Blocks until the stream is idle.
  void initialize(uint64_t seed, Stream& stream);
  // Refreshes what is derived from the parameters: the low-precision copy and the frozen part of
  // the averages. Must be called after anything but the optimizer update has written parameters.
  // Blocks.
  void parameters_changed(Stream& stream);
  // Resets the averages to the current parameters. Blocks.
  void restart_averages(Stream& stream);
  // Refreshes the low-precision copy of the averages, which evaluations read. Blocks.
  void averages_changed(Stream& stream);
  // Replaces the running statistics (of batch norm) with their means over all ranks. `weight` is
  // that of this rank's; the mean weight is 1. Collective.
  void average_running_stats(comm::Communicator& communicator, double weight, Stream& stream);

  model::ModelArrays model(void* gradients) const;
  // Returns the arrays to evaluate with: averages in place of parameters, if there are averages,
  // and no gradients.
  model::ModelArrays evaluation_model() const;
  const Buffer& activations() const { return activations_; }
  const Buffer& parameters() const { return parameters_; }
  // Includes the frozen parameters. Empty if parameters are not averaged.
  const Buffer& averages() const { return averages_; }
  const Buffer& running_stats() const { return running_stats_; }
  // Bytes of parameters, averages, their low-precision copies and running statistics.
  size_t parameter_bytes() const;

 private:
  const model::Parameters& layout_;
  ops::Backend& backend_;
  Device& device_;
  Buffer parameters_;
  model::LowPrecisionCopy low_precision_;
  Buffer averages_;
  model::LowPrecisionCopy low_precision_averages_;
  Buffer running_stats_;
  Buffer activations_;
};

// Queues a copy between two arrays of the same size, which may be 0.
void copy_array(Device& device, const Buffer& to, const Buffer& from, Stream& stream);

// Returns elements [begin, end) of an f32 array if it is in host memory; empty on a GPU.
std::span<std::byte> host_elements(const Device& device, const Buffer& array, int64_t begin,
                                   int64_t end);

}  // namespace trireme::train
