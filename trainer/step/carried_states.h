// The states that recurrent layers carry from one batch to the next (RecurrentConfig.stateful), of
// this rank's rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/device.h"
#include "data/loader.h"
#include "model/context.h"
#include "trainer/optimizer/state_arrays.h"

namespace trireme::train {

class CarriedStates {
 public:
  // Allocates the states of `rows` rows, each of which belongs to the same row of every batch. The
  // device must outlive this object.
  CarriedStates(const model::Program& program, Device& device, int64_t rows);

  // Returns the bytes that the states of a program take.
  static size_t bytes_of(const model::Program& program, int64_t rows);

  // Queue the reset of the states to 0: of all rows, and of those that do not continue the text of
  // the batch before.
  void reset(Stream& stream) const;
  void begin(const data::Batch& batch, Stream& stream) const;
  // Binds the states that a context begins with, a copy of current(), and those that it ends with,
  // which become the current ones. The rows of the context begin at `first`.
  void bind(model::Context& context, const Buffer& before, int64_t first) const;
  const Buffer& current() const { return current_; }

  // Adds the states as tensors [global batch, ...], of which this rank has the rows of `share`.
  void add_to(StateArrays& arrays, int64_t global_batch, data::Share share, bool distributed) const;

 private:
  Device& device_;
  const std::vector<model::CarriedState> states_;
  const int64_t rows_;
  Buffer current_;  // one state after the other
};

}  // namespace trireme::train
