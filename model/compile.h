// The result of compiling a Graph: planned operations and the memory location of each value. A
// Program holds it, and a Context runs it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/emitter.h"
#include "model/graph.h"
#include "model/program.h"
#include "model/stages.h"

namespace trireme::model {

// An instruction as a Context runs it. Its arguments are `args` consecutive entries, from
// `first_arg` on, of a table of addresses.
struct Operation {
  const ops::OpPlan* plan;  // null for a collective
  Collective* collective;   // sums its first argument over the ranks; null for an op
  size_t first_arg;         // index into the table
  size_t args;
  size_t scratch_offset;  // in the activation memory
  int64_t count;          // elements that a collective sums
  DType dtype;            // dtype of these elements
  // The gradients of all elements below this index are final after the operation; -1 if it makes
  // none final.
  int64_t final_end;
  // The lowest element of the trained parameters that the operation or one before it reads, if it
  // is the first to read an element that low; otherwise -1.
  int64_t reads_from = -1;
};

// A table entry bound to a port.
struct PortArg {
  size_t place;      // index into the table
  size_t offset;     // in the memory of the port; that of one row for carried states
  size_t row_bytes;  // of a row of the batch
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
  std::vector<Operation> operations;  // one for each instruction
  size_t table_size = 0;              // arguments of all operations
  std::array<std::vector<PortArg>, kPorts> port_args;
  std::vector<size_t> offsets;         // by Value::storage, in the activation memory
  std::vector<size_t> bucket_offsets;  // in ModelArrays::buckets, of transient gradients
  size_t bucket_bytes = 0;
  size_t activation_bytes = 0;
  size_t saved_bytes = 0;  // see Program::saved_bytes
  size_t cache_bytes = 0;
  std::vector<CarriedState> carried_states;
  std::array<size_t, kPorts> stage_port_bytes{};  // see Program::port_bytes
  // A whole network before operations are repeated, fused or work in place, for Program::cuts.
  InstructionList uncut;
  std::vector<CompiledNode> nodes;
  std::vector<int64_t> parameter_begins;
  std::vector<int64_t> running_stat_begins;
  std::vector<std::string> parameter_names;
  std::vector<std::string> running_stat_names;
  DType array_dtype = DType::kF32;
};

// Implements Program::compile.
CompiledNetwork compile_network(const Graph& graph, ops::Backend& backend,
                                const CompileOptions& options, Parameters& parameters);

}  // namespace trireme::model
