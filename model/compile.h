// From a graph to planned operations whose every value has a place in memory: what a Program holds
// and a Context runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/emitter.h"
#include "model/graph.h"
#include "model/program.h"

namespace trireme::model {

// An instruction as it is run. Its arguments are a range of a table of addresses.
struct Operation {
  const ops::OpPlan* plan;  // null for a collective
  Collective* collective;   // sums its first argument
  size_t first_arg;
  size_t args;
  size_t scratch_offset;  // in the activations
  int64_t count;          // of a collective
  DType dtype;
  int64_t final_end;  // gradients below it are final after this operation; -1: no news
};

struct CompiledNode {
  std::string name;
  std::string kind;
  Shape output;
  int64_t parameters = 0;
  int64_t frozen = 0;
};

struct CompiledNetwork {
  std::vector<Value> values;
  std::vector<Instruction> instructions;
  size_t forward_instructions = 0;
  std::vector<Operation> operations;                    // one an instruction
  size_t table_size = 0;                                // arguments of all operations
  std::array<std::vector<size_t>, kPorts> port_places;  // in the table
  std::vector<size_t> offsets;                          // of storages, in the activations
  size_t activation_bytes = 0;
  std::vector<CompiledNode> nodes;
  std::vector<int64_t> parameter_begins;
  std::vector<int64_t> running_begins;
  std::vector<std::string> parameter_names;
  std::vector<std::string> running_names;
  DType array_dtype = DType::kF32;
};

// See Program::compile.
CompiledNetwork compile_network(const Graph& graph, ops::Backend& backend,
                                const CompileOptions& options, Parameters& parameters);

}  // namespace trireme::model
