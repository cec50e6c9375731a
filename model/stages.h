// Pipeline stages: parts of a network that run on different devices, one after the other ("GPipe",
// Huang et al., arXiv:1811.06965; "PipeDream", Narayanan et al., arXiv:1806.03377).
//
// A stage has consecutive nodes of the graph: their operations of the forward and of the backward
// pass. A network is emitted and planned whole on every device, and then reduced to one stage.
// Stages therefore compute bitwise what the whole network computes.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "model/emitter.h"
#include "model/program.h"

namespace trireme::model {

// A network as a list of instructions, the first `forward` of which are the forward pass.
struct InstructionList {
  std::vector<Instruction> instructions;
  size_t forward = 0;
  std::vector<Value> values;
};

// Returns the stage that has the node.
int stage_of(int node, std::span<const int> begins);

// Reduces the network to the stage, with only the values that it uses. What other stages compute is
// read from Port::kStageInput and kStageOutputGradient; what they read is written to kStageOutput
// and kStageInputGradient. A value that a stage only passes on is copied from port to port. Returns
// the size of these ports, which is the same on both sides of a cut; 0 for other ports. Throws
// Error if the network cannot be cut there.
std::array<size_t, kPorts> keep_stage(InstructionList& network, const Stage& stage,
                                      ops::Backend& backend);

// Returns the places where the network can be cut, in the order of the nodes.
std::vector<Cut> possible_cuts(const InstructionList& network, size_t nodes);

}  // namespace trireme::model
