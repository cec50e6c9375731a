// The model's arrays on this rank's device, but for gradients.
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
  // Allocates them, with averages of the parameters (optimizer.ema) or without; values are
  // undefined. Both outlive it.
  StepArrays(const model::Parameters& parameters, ops::Backend& backend, size_t activation_bytes,
             bool averages);

  // Initial parameters and running values, a pure function of the seed, and averages to match.
  // Blocks until all that is queued on the stream is done.
  void initialize(uint64_t seed, Stream& stream);
  // Writes the copy in low precision, and the frozen part of the averages. Comes after whoever else
  // than the update has written values, and blocks until both are there.
  void values_changed(Stream& stream);
  // Lets the averages begin anew, with the parameters; blocks.
  void restart_averages(Stream& stream);
  // Writes the averages' copy in low precision, which an evaluation reads; blocks.
  void averages_changed(Stream& stream);
  // Makes running values (of batch norm) the mean over ranks. All ranks call it together.
  void average_running(comm::Communicator& communicator, Stream& stream);

  model::ModelArrays model(void* gradients) const;
  // With the averages, if there are any, in place of the parameters; without gradients.
  model::ModelArrays evaluated() const;
  const Buffer& activations() const { return activations_; }
  const Buffer& values() const { return values_; }
  const Buffer& averages() const { return averages_; }  // empty: none; frozen values included
  const Buffer& running() const { return running_; }
  size_t parameter_bytes() const;  // averages, copies in low precision and running values included

 private:
  const model::Parameters& parameters_;
  ops::Backend& backend_;
  Device& device_;
  Buffer values_;
  model::LowPrecisionCopy low_precision_;
  Buffer averages_;
  model::LowPrecisionCopy low_precision_averages_;
  Buffer running_;
  Buffer activations_;
};

// Queues the copy of a whole array, which may be empty, to one of its size.
void copy_array(Device& device, const Buffer& to, const Buffer& from, Stream& stream);

// Elements [begin, end) of an array of f32 where the host can reach them; none on a GPU.
std::span<std::byte> host_elements(const Device& device, const Buffer& array, int64_t begin,
                                   int64_t end);

}  // namespace trireme::train
