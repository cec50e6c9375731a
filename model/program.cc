#include "model/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "model/activations.h"
#include "model/compile.h"
#include "model/fuse_activations.h"
#include "model/stages.h"

namespace trireme::model {
namespace {

// Returns the bytes of all tensors of the instruction.
double traffic(const Instruction& instruction) {
  double bytes = 0;
  if (!instruction.plan) return bytes;
  for (const TensorSpec& spec : instruction.plan->specs()) {
    bytes += static_cast<double>(spec.bytes());
  }
  return bytes;
}

std::string_view operation_of(const Instruction& instruction) {
  return instruction.collective ? "all_reduce" : name_of(instruction.op);
}

// Sums over instructions [begin, end).
double sum_flops(const CompiledNetwork& network, size_t begin, size_t end) {
  double total = 0;
  for (size_t i = begin; i < end; ++i) {
    const Instruction& instruction = network.instructions[i];
    if (instruction.plan) total += flops(instruction.op, instruction.plan->specs());
  }
  return total;
}

}  // namespace

Program::Program(std::unique_ptr<const CompiledNetwork> network) : network_(std::move(network)) {}
Program::~Program() = default;

std::unique_ptr<const Program> Program::compile(const Graph& graph, ops::Backend& backend,
                                                const CompileOptions& options,
                                                Parameters& parameters) {
  return std::unique_ptr<const Program>(new Program(std::make_unique<const CompiledNetwork>(
      compile_network(graph, backend, options, parameters))));
}

size_t Program::activation_bytes() const { return network_->activation_bytes; }

size_t Program::saved_bytes() const { return network_->saved_bytes; }

size_t Program::bucket_bytes() const { return network_->bucket_bytes; }

const std::vector<size_t>& Program::bucket_offsets() const { return network_->bucket_offsets; }

size_t Program::port_bytes(Port port) const {
  return network_->stage_port_bytes[static_cast<size_t>(port)];
}

bool Program::reads_samples() const {
  const auto used = [&](Port port) {
    return !network_->port_args[static_cast<size_t>(port)].empty();
  };
  return used(Port::kInput) || used(Port::kTarget);
}

std::vector<Cut> Program::cuts() const {
  return possible_cuts(network_->uncut, network_->nodes.size());
}

std::vector<int> Program::parameters_of(int begin, int end) const {
  std::set<int> used;
  for (const Instruction& instruction : network_->instructions) {
    const int node = std::max(instruction.node, 0);
    if (node < begin || node >= end) continue;
    for (const ValueId arg : instruction.args) {
      if (arg == kNoValue) continue;
      const Value& value = network_->values[static_cast<size_t>(arg)];
      if (value.home == Value::Home::kParameter) used.insert(value.index);
    }
  }
  return {used.begin(), used.end()};
}

size_t Program::activation_bytes_of(int begin, int end, ops::Backend& backend) const {
  Stage stage;
  if (begin > 0) stage.begins.push_back(begin);
  if (end < static_cast<int>(network_->nodes.size())) stage.begins.push_back(end);
  stage.index = begin > 0 ? 1 : 0;
  InstructionList list = network_->uncut;
  keep_stage(list, stage, backend);
  fuse_activations(list.instructions, list.forward, list.values, backend);
  share_in_place(list.instructions, list.values);
  return plan_activations(list.instructions, list.values).bytes;
}

size_t Program::cache_bytes() const { return network_->cache_bytes; }

const std::vector<CarriedState>& Program::carried_states() const {
  return network_->carried_states;
}

double Program::forward_flops() const {
  return sum_flops(*network_, 0, network_->forward_instructions);
}

double Program::backward_flops() const {
  return sum_flops(*network_, network_->forward_instructions, network_->operations.size());
}

double Program::traffic_bytes() const {
  double total = 0;
  for (const Instruction& instruction : network_->instructions) total += traffic(instruction);
  return total;
}

std::vector<LayerReport> Program::layers() const {
  std::vector<LayerReport> reports;
  for (const CompiledNode& node : network_->nodes) {
    reports.push_back({.name = node.name,
                       .kind = node.kind,
                       .output = node.output,
                       .parameters = node.parameters,
                       .frozen = node.frozen});
  }
  for (size_t i = 0; i < network_->instructions.size(); ++i) {
    const int node = network_->instructions[i].node;
    if (node < 0) continue;
    LayerReport& report = reports[static_cast<size_t>(node)];
    (i < network_->forward_instructions ? report.forward_flops : report.backward_flops) +=
        sum_flops(*network_, i, i + 1);
  }
  return reports;
}

std::vector<InstructionReport> Program::instructions() const {
  std::vector<InstructionReport> reports;
  for (size_t i = 0; i < network_->instructions.size(); ++i) {
    const Instruction& instruction = network_->instructions[i];
    reports.push_back({.layer = instruction.node,
                       .forward = i < network_->forward_instructions,
                       .repeated = instruction.repeated,
                       .operation = operation_of(instruction),
                       .flops = sum_flops(*network_, i, i + 1),
                       .bytes = traffic(instruction)});
  }
  return reports;
}

std::string Program::listing() const {
  constexpr const char* kHomes[] = {"activations", "port",    "parameter",
                                    "gradient",    "running", "metrics"};
  constexpr const char* kPortNames[kPorts] = {"input",
                                              "target",
                                              "state",
                                              "output",
                                              "starts",
                                              "cache",
                                              "states before",
                                              "states after",
                                              "stage input",
                                              "stage output",
                                              "gradient of stage output",
                                              "gradient of stage input"};
  std::string text;
  for (size_t i = 0; i < network_->instructions.size(); ++i) {
    const Instruction& instruction = network_->instructions[i];
    text += fmt::format("{:4} {}{} {}", i, operation_of(instruction),
                        instruction.repeated >= 0 ? " (repeated)" : "",
                        instruction.node < 0
                            ? "input"
                            : network_->nodes[static_cast<size_t>(instruction.node)].name);
    for (ValueId arg : instruction.args) {
      if (arg == kNoValue) {
        text += " | -";
        continue;
      }
      const Value& value = network_->values[static_cast<size_t>(arg)];
      text += fmt::format(" | {}", value.spec.to_string());
      if (value.home == Value::Home::kActivations) {
        text += fmt::format(" @{}", network_->offsets[static_cast<size_t>(value.storage)]);
      } else if (value.home == Value::Home::kPort) {
        text += fmt::format(" {}", kPortNames[value.index]);
      } else {
        text += fmt::format(" {}", kHomes[static_cast<int>(value.home)]);
      }
    }
    const size_t scratch = instruction.plan ? instruction.plan->scratch_bytes() : 0;
    if (scratch > 0)
      text += fmt::format(" | scratch {} @{}", scratch, network_->operations[i].scratch_offset);
    text += '\n';
  }
  return text;
}

}  // namespace trireme::model
