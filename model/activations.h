// The memory of the values that a program computes and does not keep between steps, and of the
// scratch memory of its operations.
#pragma once

#include <span>
#include <vector>

#include "model/emitter.h"
#include "model/planner.h"

namespace trireme::model {

// Returns the lifetime and size of each storage, from the first to the last instruction that uses
// it. `first` is -1 if no instruction does.
std::vector<MemoryRequest> lifetimes(std::span<const Instruction> instructions,
                                     std::span<const Value> values);

// Makes operations work in place: gives an output the storage of an input that is not read later.
void share_in_place(std::span<const Instruction> instructions, std::span<Value> values);

// Returns the bytes in use while each instruction runs, scratch memory included. A plan may need
// more than their maximum, since free memory may be fragmented.
std::vector<size_t> bytes_in_use(std::span<const Instruction> instructions,
                                 std::span<const Value> values);

// Returns the bytes that instructions before `position` write and instructions from it on read.
size_t bytes_between(std::span<const Instruction> instructions, std::span<const Value> values,
                     size_t position);

struct ActivationPlan {
  std::vector<size_t> offsets;          // by storage
  std::vector<size_t> scratch_offsets;  // by instruction
  size_t bytes = 0;
};
ActivationPlan plan_activations(std::span<const Instruction> instructions,
                                std::span<const Value> values);

}  // namespace trireme::model
