// The order in which a pipeline stage computes the micro-batches of a step: one forward, one
// backward ("PipeDream-2BW", Narayanan et al., arXiv:2006.09503, section 2: PipeDream-Flush).
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::train {

struct PipelineAction {
  bool forward = true;  // the forward pass of the micro-batch, otherwise its backward pass
  int64_t micro_batch = 0;
  bool operator==(const PipelineAction&) const = default;
};

// Returns the actions of a stage. It starts with as many forward passes as there are later stages,
// then alternates between a forward and a backward pass. Forward and backward passes are each in
// the order of the micro-batches.
std::vector<PipelineAction> pipeline_schedule(int stage, int stages, int64_t micro_batches);

// Returns the maximum number of micro-batches whose activations a stage has in memory.
int64_t micro_batches_in_flight(int stage, int stages, int64_t micro_batches);

// A transfer between a stage and the next or the previous one.
struct StageTransfer {
  enum Kind : uint8_t { kReceiveInput, kSendOutput, kReceiveGradient, kSendGradient };
  Kind kind = kReceiveInput;
  int64_t micro_batch = 0;
  bool operator==(const StageTransfer&) const = default;
};

// Returns the transfers of a stage in an order in which they may run one after the other, blocking
// both stages, without a deadlock: if every stage begins each transfer when those before it are
// done and the passes that it depends on have run, all end. They do even if passes that are queued
// later wait for the transfer. For that, all stages order their transfers by the time at which the
// sender has computed them in a simulation; of transfers at the same time, activations are first.
std::vector<StageTransfer> transfer_order(int stage, int stages, int64_t micro_batches);

// Returns the fraction of a step in which a stage is idle if all stages take the same time:
// (stages - 1) / (micro_batches + stages - 1).
double pipeline_bubble(int stages, int64_t micro_batches);

}  // namespace trireme::train
