#include "model/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/emitter.h"
#include "model/planner.h"

namespace trireme {
namespace {

using Home = Value::Home;

// Instructions whose results nobody needs are taken out; returns how many of the first `forward`
// stay.
int remove_dead(std::vector<Instruction>& instructions, const std::vector<Value>& values,
                int forward) {
  std::vector<bool> read(values.size());  // by storage: read by an instruction that stays
  std::vector<bool> stays(instructions.size());
  for (size_t i = instructions.size(); i-- > 0;) {
    const Instruction& instruction = instructions[i];
    for (size_t a = 0; a < instruction.args.size(); ++a) {
      if (instruction.args[a] == kNoValue || !instruction.writes(static_cast<int>(a))) continue;
      const Value& value = values[static_cast<size_t>(instruction.args[a])];
      if (value.home != Home::kActivations || read[static_cast<size_t>(value.storage)]) {
        stays[i] = true;
      }
    }
    if (!stays[i]) continue;
    for (ValueId arg : instruction.args) {
      if (arg == kNoValue) continue;
      read[static_cast<size_t>(values[static_cast<size_t>(arg)].storage)] = true;
    }
  }
  std::vector<Instruction> kept;
  int kept_forward = 0;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (!stays[i]) continue;
    kept.push_back(std::move(instructions[i]));
    if (static_cast<int>(i) < forward) ++kept_forward;
  }
  instructions = std::move(kept);
  return kept_forward;
}

// When each storage is used, and for how many bytes.
std::vector<MemoryRequest> lives(const std::vector<Instruction>& instructions,
                                 const std::vector<Value>& values) {
  std::vector<MemoryRequest> requests(values.size(), {.bytes = 0, .first = -1, .last = -1});
  for (size_t i = 0; i < instructions.size(); ++i) {
    for (ValueId arg : instructions[i].args) {
      if (arg == kNoValue) continue;
      const Value& value = values[static_cast<size_t>(arg)];
      if (value.home != Home::kActivations) continue;
      MemoryRequest& request = requests[static_cast<size_t>(value.storage)];
      request.bytes = std::max(request.bytes, value.spec.bytes());
      if (request.first < 0) request.first = static_cast<int>(i);
      request.last = static_cast<int>(i);
    }
  }
  return requests;
}

// Gives the output of an operation the memory of an input that is read there for the last time.
void share_in_place(const std::vector<Instruction>& instructions, std::vector<Value>& values) {
  std::vector<MemoryRequest> requests = lives(instructions, values);
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    if (instruction.collective) continue;
    std::vector<int> taken;
    for (auto [out, in] : aliases(instruction.op)) {
      const ValueId out_id = instruction.args[static_cast<size_t>(out)];
      const ValueId in_id = instruction.args[static_cast<size_t>(in)];
      if (out_id == kNoValue || in_id == kNoValue) continue;
      const Value& to = values[static_cast<size_t>(out_id)];
      const Value& from = values[static_cast<size_t>(in_id)];
      if (to.home != Home::kActivations || from.home != Home::kActivations) continue;
      const int gone = to.storage;
      const int stays = from.storage;
      MemoryRequest& output = requests[static_cast<size_t>(gone)];
      MemoryRequest& input = requests[static_cast<size_t>(stays)];
      const bool fits = gone != stays && output.first == static_cast<int>(i) &&
                        input.last == static_cast<int>(i) && output.bytes == input.bytes &&
                        std::find(taken.begin(), taken.end(), stays) == taken.end();
      if (!fits) continue;
      taken.push_back(stays);
      input.last = output.last;
      for (Value& value : values) {
        if (value.storage == gone) value.storage = stays;
      }
    }
  }
}

std::unique_ptr<Emitter> emit_network(const Graph& graph, Backend& backend,
                                      const CompileOptions& options, Parameters& parameters) {
  auto emitter = std::make_unique<Emitter>(graph, backend, options.batch, options.training,
                                           options.accumulate, options.collective, parameters);
  emitter->forward();
  if (options.output) emitter->output_of_network();
  if (options.training) emitter->backward();
  return emitter;
}

// What the first number is that is not finite, told by the bits of its type; empty where all are.
template <class Bits>
std::string bad_number(const std::vector<std::byte>& memory, Bits sign, Bits exponent) {
  for (size_t at = 0; at < memory.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, memory.data() + at, sizeof bits);
    if ((bits & exponent) != exponent) continue;
    if ((bits & ~(sign | exponent)) != 0) return "nan";
    return (bits & sign) != 0 ? "-inf" : "inf";
  }
  return {};
}

std::string bad_number(const std::vector<std::byte>& memory, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return bad_number<uint64_t>(memory, uint64_t{1} << 63, uint64_t{0x7FF} << 52);
    case DType::kF32:
      return bad_number<uint32_t>(memory, 0x8000'0000, 0x7F80'0000);
    case DType::kBF16:
      return bad_number<uint16_t>(memory, 0x8000, 0x7F80);
    case DType::kF16:
      return bad_number<uint16_t>(memory, 0x8000, 0x7C00);
    default:
      return {};  // integers
  }
}

// If each tensor passes once between memory and processor.
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

constexpr int64_t kElementAlignment = 16;

int64_t aligned(int64_t elements) {
  return (elements + kElementAlignment - 1) / kElementAlignment * kElementAlignment;
}

// Behind those that have been placed.
void place_running(Parameters& parameters, bool frozen) {
  int64_t& end = parameters.running_elements;
  for (RunningValue& value : parameters.running) {
    if (value.frozen != frozen) continue;
    value.begin = end;
    end = aligned(end + value.spec.shape.elements());
  }
}

}  // namespace

struct Program::Impl {
  // A range of the argument table.
  struct Step {
    const OpPlan* plan;
    Collective* collective;
    size_t first_arg;
    size_t args;
    size_t scratch_offset;
    int64_t count;  // of a collective
    DType dtype;
    int64_t final_end;  // gradients below it are final after this step; -1: no news
  };
  struct NodeInfo {
    std::string name;
    std::string kind;
    Shape output;
    int64_t parameters = 0;
    int64_t frozen = 0;
  };

  std::vector<Value> values;
  std::vector<Instruction> instructions;
  int forward_instructions = 0;
  std::vector<size_t> offsets;  // of storages, in the activations
  size_t activation_bytes = 0;
  std::vector<Step> steps;
  std::vector<void*> table;          // all arguments of all steps
  std::vector<size_t> input_places;  // in the table
  std::vector<size_t> target_places;
  std::vector<size_t> state_places;
  std::vector<NodeInfo> nodes;
  std::vector<int64_t> parameter_begins;
  std::vector<int64_t> running_begins;
  std::vector<std::string> parameter_names;
  std::vector<std::string> running_names;
  DType array_dtype = DType::kF32;
  std::byte* activations = nullptr;
  InstructionObserver* observer = nullptr;

  void place_parameters(Parameters& parameters) const;
  void place_activations();
  void lay_out_steps(const Parameters& parameters);
  std::vector<int> last_writes(const Parameters& parameters) const;
  void* address(const Value& value, const ProgramMemory& memory) const;
  void run(Stream& stream, size_t begin, size_t end,
           const std::function<void(int64_t)>* final_end) const;
  std::string describe(size_t instruction, const Value& value) const;
  std::string not_finite(size_t instruction, bool written, Device& device, Stream& stream) const;
  double sum_flops(size_t begin, size_t end, int node) const;
};

// The instruction after which each parameter's gradient is final; -1 where none writes it.
std::vector<int> Program::Impl::last_writes(const Parameters& parameters) const {
  std::vector<int> last(parameters.all.size(), -1);
  for (size_t i = 0; i < instructions.size(); ++i) {
    for (size_t a = 0; a < instructions[i].args.size(); ++a) {
      const ValueId arg = instructions[i].args[a];
      if (arg == kNoValue || !instructions[i].writes(static_cast<int>(a))) continue;
      const Value& value = values[static_cast<size_t>(arg)];
      if (value.home == Home::kGradient)
        last[static_cast<size_t>(value.index)] = static_cast<int>(i);
    }
  }
  return last;
}

// In the order in which gradients become final, so that a bucket is a range; what is frozen comes
// last.
void Program::Impl::place_parameters(Parameters& parameters) const {
  for (const Value& value : values) {
    if (value.home != Home::kParameter) continue;
    Parameter& parameter = parameters.all[static_cast<size_t>(value.index)];
    parameter.spec.layout = value.spec.layout;
    parameter.dtype = value.spec.dtype;
  }
  if (parameters.elements > 0) return;
  const std::vector<int> last = last_writes(parameters);
  std::vector<size_t> order(last.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(parameters.all[a].frozen, last[a]) <
           std::pair(parameters.all[b].frozen, last[b]);
  });
  int64_t end = kMetricCount;
  parameters.trained_elements = end;
  for (size_t p : order) {
    Parameter& parameter = parameters.all[p];
    parameter.begin = end;
    parameter.end =
        end + static_cast<int64_t>(parameter.spec.bytes() / size_of(parameter.spec.dtype));
    end = aligned(parameter.end);
    if (!parameter.frozen) parameters.trained_elements = end;
  }
  parameters.elements = end;
  place_running(parameters, /*frozen=*/false);
  parameters.moving_elements = parameters.running_elements;
  place_running(parameters, /*frozen=*/true);
}

void Program::Impl::place_activations() {
  share_in_place(instructions, values);
  std::vector<MemoryRequest> requests = lives(instructions, values);
  const size_t storages = requests.size();
  for (MemoryRequest& request : requests) {
    if (request.first < 0) request = {};  // in no instruction: no bytes
  }
  for (size_t i = 0; i < instructions.size(); ++i) {
    const size_t bytes = instructions[i].plan ? instructions[i].plan->scratch_bytes() : 0;
    requests.push_back({bytes, static_cast<int>(i), static_cast<int>(i)});
  }
  const MemoryPlan plan = plan_memory(requests);
  activation_bytes = plan.bytes;
  offsets.assign(plan.offsets.begin(), plan.offsets.begin() + static_cast<ptrdiff_t>(storages));
  for (size_t i = 0; i < instructions.size(); ++i) {
    steps.push_back({.plan = instructions[i].plan.get(),
                     .collective = instructions[i].collective,
                     .first_arg = 0,
                     .args = 0,
                     .scratch_offset = plan.offsets[storages + i],
                     .count = 0,
                     .dtype = DType::kF32,
                     .final_end = -1});
  }
}

void Program::Impl::lay_out_steps(const Parameters& parameters) {
  const std::vector<int> last = last_writes(parameters);
  for (size_t i = 0; i < instructions.size(); ++i) {
    Step& step = steps[i];
    step.first_arg = table.size();
    step.args = instructions[i].args.size();
    for (ValueId arg : instructions[i].args) {
      if (arg != kNoValue) {
        const Value& value = values[static_cast<size_t>(arg)];
        if (value.home == Home::kInput) input_places.push_back(table.size());
        if (value.home == Home::kTarget) target_places.push_back(table.size());
        if (value.home == Home::kState) state_places.push_back(table.size());
      }
      table.push_back(nullptr);
    }
    if (step.collective) {
      const TensorSpec& spec = values[static_cast<size_t>(instructions[i].args[0])].spec;
      step.count = spec.shape.elements();
      step.dtype = spec.dtype;
    }
    if (std::find(last.begin(), last.end(), static_cast<int>(i)) == last.end()) continue;
    step.final_end = parameters.trained_elements;
    for (size_t p = 0; p < last.size(); ++p) {
      if (last[p] > static_cast<int>(i)) {
        step.final_end = std::min(step.final_end, parameters.all[p].begin);
      }
    }
  }
  for (const Parameter& parameter : parameters.all) {
    parameter_begins.push_back(parameter.begin);
    parameter_names.push_back(parameter.name);
  }
  for (const RunningValue& value : parameters.running) {
    running_begins.push_back(value.begin);
    running_names.push_back(value.name);
  }
  array_dtype = parameters.array_dtype();
}

void* Program::Impl::address(const Value& value, const ProgramMemory& memory) const {
  const auto at = [](void* base, size_t bytes) { return static_cast<std::byte*>(base) + bytes; };
  const auto element = [&](void* array, const std::vector<int64_t>& begins) {
    return at(array, static_cast<size_t>(begins[static_cast<size_t>(value.index)]) *
                         size_of(value.spec.dtype));
  };
  switch (value.home) {
    case Home::kActivations:
      return at(memory.activations, offsets[static_cast<size_t>(value.storage)]);
    case Home::kParameter:
      return element(value.spec.dtype == array_dtype ? memory.parameters : memory.low_precision,
                     parameter_begins);
    case Home::kGradient:
      return element(memory.gradients, parameter_begins);
    case Home::kRunning:
      return element(memory.running, running_begins);
    case Home::kMetrics:
      return memory.gradients;
    case Home::kOutput:
      return memory.output;
    case Home::kState:
    case Home::kInput:
    case Home::kTarget:
      break;
  }
  return nullptr;  // bound with each batch
}

void Program::Impl::run(Stream& stream, size_t begin, size_t end,
                        const std::function<void(int64_t)>* final_end) const {
  for (size_t i = begin; i < end; ++i) {
    const Step& step = steps[i];
    if (observer) observer->before(i, stream);
    if (step.plan) {
      step.plan->encode(stream, Args(table).subspan(step.first_arg, step.args),
                        activations + step.scratch_offset);
    } else {
      step.collective->all_reduce_sum(table[step.first_arg], step.count, step.dtype, stream);
    }
    if (observer) observer->after(i, stream);
    if (final_end && step.final_end >= 0) (*final_end)(step.final_end);
  }
}

// A value as this instruction knows it, for people.
std::string Program::Impl::describe(size_t instruction, const Value& value) const {
  const auto index = static_cast<size_t>(value.index);
  switch (value.home) {
    case Home::kParameter:
      return fmt::format("parameter '{}'", parameter_names[index]);
    case Home::kGradient:
      return fmt::format("gradient of '{}'", parameter_names[index]);
    case Home::kRunning:
      return fmt::format("'{}'", running_names[index]);
    case Home::kMetrics:
      return "the loss";
    case Home::kInput:
      return "a sample";
    case Home::kTarget:
      return "a target";
    case Home::kOutput:
      return "the output";
    case Home::kState:
    case Home::kActivations:
      break;
  }
  const int node = instructions[instruction].node;
  if (node < 0) return "the normalised input";
  const bool forward = instruction < static_cast<size_t>(forward_instructions);
  return fmt::format("{} layer '{}'", forward ? "output of" : "gradient in",
                     nodes[static_cast<size_t>(node)].name);
}

// What is not finite among what the instruction reads (and no other has written) or writes.
std::string Program::Impl::not_finite(size_t instruction, bool written, Device& device,
                                      Stream& stream) const {
  const std::vector<ValueId>& args = instructions[instruction].args;
  for (size_t a = 0; a < args.size(); ++a) {
    if (args[a] == kNoValue || instructions[instruction].writes(static_cast<int>(a)) != written) {
      continue;
    }
    const Value& value = values[static_cast<size_t>(args[a])];
    if (!written && value.home == Home::kActivations) continue;
    std::vector<std::byte> host(value.spec.bytes());
    device.copy(host.data(), table[steps[instruction].first_arg + a], host.size(), stream);
    stream.synchronize();
    const std::string bad = bad_number(host, value.spec.dtype);
    if (!bad.empty())
      return fmt::format("{} is not finite ({})", describe(instruction, value), bad);
  }
  return {};
}

double Program::Impl::sum_flops(size_t begin, size_t end, int node) const {
  double total = 0;
  for (size_t i = begin; i < end; ++i) {
    const Instruction& instruction = instructions[i];
    if (instruction.plan && (node < 0 || instruction.node == node)) {
      total += flops(instruction.op, instruction.plan->specs());
    }
  }
  return total;
}

Program::Program(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Program::~Program() = default;

std::unique_ptr<Program> Program::compile(const Graph& graph, Backend& backend,
                                          const CompileOptions& options, Parameters& parameters) {
  if (parameters.elements == 0) parameters.dtype = options.dtype;
  std::unique_ptr<Emitter> emitter = emit_network(graph, backend, options, parameters);
  // Forward has chosen the layouts of values in low precision, but twice as many bytes of gradients
  // lie like them, and reordering those may be slow (on the CPU pairs of channels are interleaved).
  if (parameters.elements == 0 && parameters.low_precision() && emitter->adopt_gradient_layouts()) {
    emitter = emit_network(graph, backend, options, parameters);
  }

  auto impl = std::make_unique<Impl>();
  impl->values = std::move(emitter->values());
  impl->instructions = std::move(emitter->instructions());
  impl->forward_instructions =
      remove_dead(impl->instructions, impl->values, emitter->forward_instructions());
  for (const Node& node : graph.nodes) {
    Impl::NodeInfo& info = impl->nodes.emplace_back();
    info.name = node.name;
    info.kind = node.layer->kind();
    info.output = node.signature.output;
    for (const auto& parameter : node.signature.parameters) {
      info.parameters += parameter.shape.elements();
      if (parameter.frozen) info.frozen += parameter.shape.elements();
    }
  }
  impl->place_parameters(parameters);
  impl->place_activations();
  impl->lay_out_steps(parameters);
  return std::unique_ptr<Program>(new Program(std::move(impl)));
}

void Program::bind(const ProgramMemory& memory) {
  impl_->activations = static_cast<std::byte*>(memory.activations);
  for (size_t i = 0; i < impl_->steps.size(); ++i) {
    const std::vector<ValueId>& args = impl_->instructions[i].args;
    for (size_t a = 0; a < args.size(); ++a) {
      if (args[a] == kNoValue) continue;
      impl_->table[impl_->steps[i].first_arg + a] =
          impl_->address(impl_->values[static_cast<size_t>(args[a])], memory);
    }
  }
}

void Program::bind_batch(const void* inputs, const void* targets, StepState* state) {
  for (size_t place : impl_->input_places) impl_->table[place] = const_cast<void*>(inputs);
  for (size_t place : impl_->target_places) impl_->table[place] = const_cast<void*>(targets);
  for (size_t place : impl_->state_places) impl_->table[place] = state;
}

void Program::forward(Stream& stream) {
  impl_->run(stream, 0, static_cast<size_t>(impl_->forward_instructions), nullptr);
}

void Program::backward(Stream& stream, const std::function<void(int64_t)>& final_end) {
  impl_->run(stream, static_cast<size_t>(impl_->forward_instructions), impl_->steps.size(),
             final_end ? &final_end : nullptr);
}

void Program::observe(InstructionObserver* observer) { impl_->observer = observer; }

std::optional<Program::NotFinite> Program::first_not_finite(
    Device& device, Stream& stream, const std::function<void(int64_t)>& final_end) {
  std::optional<NotFinite> found;
  for (size_t i = 0; i < impl_->steps.size(); ++i) {
    const auto look = [&](bool written) {
      if (found) return;
      std::string what = impl_->not_finite(i, written, device, stream);
      if (!what.empty()) found = {static_cast<int>(i), std::move(what)};
    };
    look(/*written=*/false);
    impl_->run(stream, i, i + 1, final_end ? &final_end : nullptr);
    look(/*written=*/true);
  }
  return found;
}

size_t Program::activation_bytes() const { return impl_->activation_bytes; }

double Program::forward_flops() const {
  return impl_->sum_flops(0, static_cast<size_t>(impl_->forward_instructions), -1);
}

double Program::backward_flops() const {
  return impl_->sum_flops(static_cast<size_t>(impl_->forward_instructions), impl_->steps.size(),
                          -1);
}

double Program::traffic_bytes() const {
  double total = 0;
  for (const Instruction& instruction : impl_->instructions) total += traffic(instruction);
  return total;
}

std::vector<LayerReport> Program::layers() const {
  std::vector<LayerReport> reports;
  const auto forward = static_cast<size_t>(impl_->forward_instructions);
  for (size_t n = 0; n < impl_->nodes.size(); ++n) {
    const Impl::NodeInfo& node = impl_->nodes[n];
    reports.push_back(
        {.name = node.name,
         .kind = node.kind,
         .output = node.output,
         .parameters = node.parameters,
         .frozen = node.frozen,
         .forward_flops = impl_->sum_flops(0, forward, static_cast<int>(n)),
         .backward_flops = impl_->sum_flops(forward, impl_->steps.size(), static_cast<int>(n))});
  }
  return reports;
}

std::vector<InstructionReport> Program::instructions() const {
  std::vector<InstructionReport> reports;
  for (size_t i = 0; i < impl_->instructions.size(); ++i) {
    const Instruction& instruction = impl_->instructions[i];
    reports.push_back({.layer = instruction.node,
                       .forward = i < static_cast<size_t>(impl_->forward_instructions),
                       .operation = operation_of(instruction),
                       .flops = impl_->sum_flops(i, i + 1, -1),
                       .bytes = traffic(instruction)});
  }
  return reports;
}

std::string Program::listing() const {
  constexpr const char* kHomes[] = {"activations", "input", "target",  "parameter", "gradient",
                                    "running",     "state", "metrics", "output"};
  std::string text;
  for (size_t i = 0; i < impl_->instructions.size(); ++i) {
    const Instruction& instruction = impl_->instructions[i];
    text += fmt::format(
        "{:4} {} {}", i, operation_of(instruction),
        instruction.node < 0 ? "input" : impl_->nodes[static_cast<size_t>(instruction.node)].name);
    for (ValueId arg : instruction.args) {
      if (arg == kNoValue) {
        text += " | -";
        continue;
      }
      const Value& value = impl_->values[static_cast<size_t>(arg)];
      text += fmt::format(" | {}", value.spec.to_string());
      if (value.home == Home::kActivations) {
        text += fmt::format(" @{}", impl_->offsets[static_cast<size_t>(value.storage)]);
      } else {
        text += fmt::format(" {}", kHomes[static_cast<int>(value.home)]);
      }
    }
    const size_t scratch = instruction.plan ? instruction.plan->scratch_bytes() : 0;
    if (scratch > 0)
      text += fmt::format(" | scratch {} @{}", scratch, impl_->steps[i].scratch_offset);
    text += '\n';
  }
  return text;
}

}  // namespace trireme
