#include "model/compile.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/alignment.h"
#include "model/activations.h"
#include "model/fuse_activations.h"
#include "model/recompute.h"
#include "model/stages.h"
#include "ops/step_state.h"

namespace trireme::model {
namespace {

using Home = Value::Home;

// Removes instructions whose results are not used. Returns how many of the first `forward` remain.
size_t remove_dead(std::vector<Instruction>& instructions, const std::vector<Value>& values,
                   size_t forward) {
  std::vector<bool> read(values.size());  // by storage: read by an instruction that is needed
  std::vector<bool> needed(instructions.size());
  for (size_t i = instructions.size(); i-- > 0;) {
    const Instruction& instruction = instructions[i];
    for (size_t a = 0; a < instruction.args.size(); ++a) {
      if (instruction.args[a] == kNoValue || !instruction.writes(a)) continue;
      const Value& value = values[instruction.args[a]];
      if (value.home != Home::kActivations || read[value.storage]) {
        needed[i] = true;
      }
    }
    if (!needed[i]) continue;
    for (ValueId arg : instruction.args) {
      if (arg == kNoValue) continue;
      read[values[arg].storage] = true;
    }
  }
  std::vector<Instruction> remaining;
  size_t remaining_forward = 0;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (!needed[i]) continue;
    remaining.push_back(std::move(instructions[i]));
    if (i < forward) ++remaining_forward;
  }
  instructions = std::move(remaining);
  return remaining_forward;
}

std::unique_ptr<Emitter> emit_network(const Graph& graph, ops::Backend& backend,
                                      const CompileOptions& options, Parameters& parameters) {
  auto emitter = std::make_unique<Emitter>(graph, backend, options, parameters);
  emitter->forward();
  if (options.output) emitter->emit_output();
  if (options.training) emitter->backward();
  return emitter;
}

constexpr int64_t kElementAlignment = 16;

int64_t aligned(int64_t elements, int64_t alignment = kElementAlignment) {
  return round_up(elements, alignment);
}

// Places the running statistics that are (not) frozen after those placed before.
void place_running_stats(Parameters& parameters, bool frozen) {
  int64_t& end = parameters.running_stat_elements;
  for (RunningStatistic& value : parameters.running_stats) {
    if (value.frozen != frozen) continue;
    value.begin = end;
    end = aligned(end + value.spec.shape.elements());
  }
}

// Returns, by parameter, the instruction after which the gradient is final, or -1 if no instruction
// writes the gradient.
std::vector<int> last_writes(const CompiledNetwork& network, const Parameters& parameters) {
  std::vector<int> last(parameters.all.size(), -1);
  for (size_t i = 0; i < network.instructions.size(); ++i) {
    const Instruction& instruction = network.instructions[i];
    for (size_t a = 0; a < instruction.args.size(); ++a) {
      if (instruction.args[a] == kNoValue || !instruction.writes(a)) continue;
      const Value& value = network.values[instruction.args[a]];
      if (value.home == Home::kGradient) last[value.index] = static_cast<int>(i);
    }
  }
  return last;
}

void adopt_specs(const CompiledNetwork& network, Parameters& parameters) {
  for (const Value& value : network.values) {
    if (value.home != Home::kParameter) continue;
    Parameter& parameter = parameters.all[value.index];
    parameter.spec.layout = value.spec.layout;
    parameter.dtype = value.spec.dtype;
  }
}

// Moves what other stages have back to what this stage has, in the order of the whole network.
template <class Named>
void join(std::vector<Named>& own, std::vector<Named>& of_other_stages) {
  std::ranges::move(of_other_stages, std::back_inserter(own));
  of_other_stages.clear();
  std::ranges::stable_sort(own, {}, &Named::index);
}

// Keeps those that values of this home refer to, and moves the others to `of_other_stages`.
template <class Named>
void separate(std::vector<Named>& own, std::vector<Named>& of_other_stages, Home home,
              Home other_home, std::vector<Value>& values) {
  std::vector<int> new_index(own.size(), -1);
  const auto refers = [&](const Value& value) {
    return value.home == home || value.home == other_home;
  };
  for (const Value& value : values) {
    if (refers(value)) new_index[value.index] = 0;
  }
  std::vector<Named> used;
  for (size_t i = 0; i < own.size(); ++i) {
    if (new_index[i] == 0) new_index[i] = static_cast<int>(used.size());
    (new_index[i] >= 0 ? used : of_other_stages).push_back(std::move(own[i]));
  }
  own = std::move(used);
  for (Value& value : values) {
    if (refers(value)) value.index = new_index[value.index];
  }
}

// Sets Parameter::stages.
void find_stages(const CompiledNetwork& network, const Stage& stage, Parameters& parameters) {
  for (const Instruction& instruction : network.instructions) {
    const int index = stage_of(instruction.node, stage.begins);
    for (const ValueId arg : instruction.args) {
      if (arg == kNoValue) continue;
      const Value& value = network.values[arg];
      if (value.home != Home::kParameter && value.home != Home::kGradient) continue;
      std::vector<int>& stages = parameters.all[value.index].stages;
      const auto place = std::ranges::lower_bound(stages, index);
      if (place == stages.end() || *place != index) stages.insert(place, index);
    }
  }
}

// Reduces the network and its parameters to one stage.
void reduce_to_stage(CompiledNetwork& network, const Stage& stage, ops::Backend& backend,
                     Parameters& parameters) {
  if (parameters.elements == 0) find_stages(network, stage, parameters);
  InstructionList list{std::move(network.instructions), network.forward_instructions,
                       std::move(network.values)};
  network.stage_port_bytes = keep_stage(list, stage, backend);
  network.instructions = std::move(list.instructions);
  network.forward_instructions = list.forward;
  network.values = std::move(list.values);
  separate(parameters.all, parameters.of_other_stages, Home::kParameter, Home::kGradient,
           network.values);
  separate(parameters.running_stats, parameters.running_stats_of_other_stages, Home::kRunningStat,
           Home::kRunningStat, network.values);
}

// Returns the parameters in the order of the arrays: that in which their gradients become final, so
// that a gradient bucket is a contiguous range. Frozen parameters come last. If buckets are divided
// among ranks, parameters that the network reads in full precision follow the others, so that a
// bucket is gathered in one dtype.
std::vector<size_t> order_of(const Parameters& parameters, const std::vector<int>& last,
                             bool by_dtype) {
  std::vector<size_t> order(last.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    const Parameter& p = parameters.all[i];
    return std::tuple(p.frozen, by_dtype && p.dtype != parameters.dtype, last[i]);
  });
  return order;
}

int64_t stored_elements(const Parameter& parameter) {
  return static_cast<int64_t>(parameter.spec.bytes() / size_of(parameter.spec.dtype));
}

// Returns the ends of the buckets, without the padding of buckets.
std::vector<int64_t> choose_bucket_ends(const CompileOptions& options, const Parameters& parameters,
                                        std::span<const size_t> trained) {
  std::vector<int64_t> ends;  // of the gradients
  int64_t end = ops::kMetricCount;
  ptrdiff_t low_precision = 0;  // number of gradients before those read in full precision
  for (const size_t p : trained) {
    end = aligned(end + stored_elements(parameters.all[p]));
    ends.push_back(end);
    if (parameters.all[p].dtype == parameters.dtype) low_precision = std::ssize(ends);
  }
  if (ends.empty() || !options.bucket_ends) return {end};
  if (options.bucket_multiple == 1 || low_precision == 0 || low_precision == std::ssize(ends)) {
    return options.bucket_ends(ends);
  }
  std::vector<int64_t> chosen = options.bucket_ends(std::span(ends).first(low_precision));
  chosen.push_back(end);
  return chosen;
}

// Places the parameters in the arrays and sets Parameters::bucket_ends.
void place_parameters(const CompiledNetwork& network, const CompileOptions& options,
                      Parameters& parameters) {
  if (parameters.elements > 0) return;
  const std::vector<size_t> order =
      order_of(parameters, last_writes(network, parameters), options.bucket_multiple > 1);
  const auto frozen =
      std::ranges::find_if(order, [&](size_t p) { return parameters.all[p].frozen; });
  const std::vector<int64_t> bucket_ends =
      choose_bucket_ends(options, parameters, {order.begin(), frozen});
  int64_t end = ops::kMetricCount;
  int64_t padding = 0;  // of the buckets so far
  const auto end_bucket = [&] {
    const int64_t padded = aligned(end + padding, options.bucket_multiple);
    padding = padded - end;
    parameters.bucket_ends.push_back(padded);
  };
  for (auto p = order.begin(); p != order.end(); ++p) {
    if (p == frozen && parameters.bucket_ends.empty()) end_bucket();  // nothing is trained
    Parameter& parameter = parameters.all[*p];
    parameter.begin = end + padding;
    parameter.end = parameter.begin + stored_elements(parameter);
    end = aligned(end + stored_elements(parameter));
    const size_t bucket = parameters.bucket_ends.size();
    if (bucket < bucket_ends.size() && end == bucket_ends[bucket]) end_bucket();
  }
  if (parameters.bucket_ends.empty()) end_bucket();  // there are no parameters
  parameters.trained_elements = parameters.bucket_ends.back();
  parameters.elements = end + padding;
}

// Places the gradients of each bucket. Its memory is in use from the first instruction that writes
// one of them until the gradients of the next bucket are final: until then they are summed over
// ranks.
void place_transient_gradients(CompiledNetwork& network, const Parameters& parameters) {
  const int end = static_cast<int>(network.instructions.size());
  std::vector<MemoryRequest> buckets;
  std::vector<int64_t> begins{0};
  for (const int64_t bucket_end : parameters.bucket_ends) {
    const int64_t elements = bucket_end - begins.back();
    buckets.push_back({.bytes = static_cast<size_t>(elements) * size_of(parameters.array_dtype()),
                       .first = end,
                       .last = 0});
    begins.push_back(bucket_end);
  }
  for (int i = 0; i < end; ++i) {
    for (const ValueId arg : network.instructions[i].args) {
      if (arg == kNoValue) continue;
      const Value& value = network.values[arg];
      if (value.home != Home::kGradient) continue;
      const Parameter& parameter = parameters.all[value.index];
      MemoryRequest& bucket = buckets[bucket_of(parameters, parameter)];
      bucket.first = std::min(bucket.first, i);
      bucket.last = i;
    }
  }
  for (size_t b = 0; b < buckets.size(); ++b) {
    buckets[b].last = b + 1 < buckets.size() ? std::max(buckets[b].last, buckets[b + 1].last) : end;
  }
  MemoryPlan plan = plan_memory(buckets);
  network.bucket_bytes = plan.bytes;
  network.bucket_offsets = std::move(plan.offsets);
  for (Value& value : network.values) {
    if (value.home != Home::kGradient) continue;
    const Parameter& parameter = parameters.all[value.index];
    if (parameter.frozen) continue;
    const size_t bucket = bucket_of(parameters, parameter);
    value.offset =
        network.bucket_offsets[bucket] +
        static_cast<size_t>(parameter.begin - begins[bucket]) * size_of(value.spec.dtype);
  }
}

// Places the running statistics, frozen ones last.
void place_all_running_stats(Parameters& parameters) {
  if (parameters.running_stat_elements > 0) return;
  place_running_stats(parameters, /*frozen=*/false);
  parameters.updated_stat_elements = parameters.running_stat_elements;
  place_running_stats(parameters, /*frozen=*/true);
}

// Places storages and scratch memory, and creates the operations.
void place_activations(CompiledNetwork& network) {
  const std::vector<Instruction>& instructions = network.instructions;
  share_in_place(instructions, network.values);
  ActivationPlan plan = plan_activations(instructions, network.values);
  network.activation_bytes = plan.bytes;
  network.saved_bytes = bytes_between(instructions, network.values, network.forward_instructions);
  network.offsets = std::move(plan.offsets);
  for (size_t i = 0; i < instructions.size(); ++i) {
    network.operations.push_back({.plan = instructions[i].plan.get(),
                                  .collective = instructions[i].collective,
                                  .first_arg = 0,
                                  .args = 0,
                                  .scratch_offset = plan.scratch_offsets[i],
                                  .count = 0,
                                  .dtype = DType::kF32,
                                  .final_end = -1});
  }
}

// Assigns each operation its range in the table of addresses.
void place_arguments(CompiledNetwork& network) {
  for (size_t i = 0; i < network.instructions.size(); ++i) {
    const std::vector<ValueId>& args = network.instructions[i].args;
    Operation& operation = network.operations[i];
    operation.first_arg = network.table_size;
    operation.args = args.size();
    for (size_t a = 0; a < args.size(); ++a) {
      if (args[a] == kNoValue) continue;
      const Value& value = network.values[args[a]];
      if (value.home != Home::kPort) continue;
      const int64_t rows = std::max<int64_t>(1, value.spec.shape[0]);
      network.port_args[value.index].push_back(
          {.place = network.table_size + a,
           .offset = value.offset,
           .row_bytes = value.spec.bytes() / static_cast<size_t>(rows)});
    }
    network.table_size += args.size();
    if (!operation.collective) continue;
    const TensorSpec& spec = network.values[args[0]].spec;
    operation.count = spec.shape.elements();
    operation.dtype = spec.dtype;
  }
}

// Sets Operation::final_end.
void find_final_gradients(CompiledNetwork& network, const Parameters& parameters) {
  const std::vector<int> last = last_writes(network, parameters);
  std::vector<std::pair<int, int64_t>> written;  // by which operation, and where
  for (size_t p = 0; p < last.size(); ++p) {
    if (last[p] >= 0) written.emplace_back(last[p], parameters.all[p].begin);
  }
  std::ranges::sort(written, std::greater{});
  int64_t later = parameters.trained_elements;  // the first that a later operation writes
  for (size_t i = 0; i < written.size();) {
    const int writer = written[i].first;
    network.operations[writer].final_end = later;
    for (; i < written.size() && written[i].first == writer; ++i) {
      later = std::min(later, written[i].second);
    }
  }
}

// Sets Operation::reads_from of the forward pass.
void find_first_reads(CompiledNetwork& network, const Parameters& parameters) {
  int64_t lowest = parameters.trained_elements;
  for (size_t i = 0; i < network.forward_instructions; ++i) {
    const int64_t before = lowest;
    for (const ValueId arg : network.instructions[i].args) {
      if (arg == kNoValue) continue;
      const Value& value = network.values[arg];
      if (value.home != Home::kParameter) continue;
      lowest = std::min(lowest, parameters.all[value.index].begin);
    }
    if (lowest < before) network.operations[i].reads_from = lowest;
  }
}

// Copies names, sizes and offsets, since graph and parameters need not outlive the program.
void copy_metadata(CompiledNetwork& network, const Graph& graph, const Parameters& parameters) {
  for (const Node& node : graph.nodes) {
    CompiledNode& compiled = network.nodes.emplace_back();
    compiled.name = node.name;
    compiled.kind = node.layer->kind();
    compiled.output = node.signature.output;
    for (const auto& parameter : node.signature.parameters) {
      if (!parameter.tied_to.empty()) continue;  // counted there
      compiled.parameters += parameter.shape.elements();
      if (parameter.frozen) compiled.frozen += parameter.shape.elements();
    }
  }
  for (const Parameter& parameter : parameters.all) {
    network.parameter_begins.push_back(parameter.begin);
    network.parameter_names.push_back(parameter.name);
  }
  for (const RunningStatistic& value : parameters.running_stats) {
    network.running_stat_begins.push_back(value.begin);
    network.running_stat_names.push_back(value.name);
  }
  network.array_dtype = parameters.array_dtype();
}

}  // namespace

CompiledNetwork compile_network(const Graph& graph, ops::Backend& backend,
                                const CompileOptions& options, Parameters& parameters) {
  if (parameters.elements == 0) parameters.dtype = options.dtype;
  join(parameters.all, parameters.of_other_stages);
  join(parameters.running_stats, parameters.running_stats_of_other_stages);
  std::unique_ptr<Emitter> emitter = emit_network(graph, backend, options, parameters);
  // In low precision, the forward pass has chosen layouts for the 16-bit parameters, but the f32
  // gradients share these layouts, and reordering gradients to them may be slow (on the CPU, pairs
  // of channels are interleaved). So use the layouts that the gradients' plans prefer.
  if (parameters.elements == 0 && parameters.low_precision() && emitter->adopt_gradient_layouts()) {
    emitter = emit_network(graph, backend, options, parameters);
  }

  CompiledNetwork network;
  network.values.assign(std::make_move_iterator(emitter->values().begin()),
                        std::make_move_iterator(emitter->values().end()));
  network.instructions = std::move(emitter->instructions());
  network.forward_instructions = remove_dead(network.instructions, network.values,
                                             static_cast<size_t>(emitter->forward_instructions()));
  network.cache_bytes = emitter->cache_bytes();
  network.carried_states = emitter->carried_states();
  adopt_specs(network, parameters);
  if (!options.stage.is_whole()) reduce_to_stage(network, options.stage, backend, parameters);
  place_parameters(network, options, parameters);
  if (options.transient_gradients) place_transient_gradients(network, parameters);
  if (options.stage.is_whole()) {
    network.uncut = {network.instructions, network.forward_instructions, network.values};
  }
  // Operations are fused first, since a fused one rounds differently from the two that it replaces.
  fuse_activations(network.instructions, network.forward_instructions, network.values, backend);
  if (options.activation_limit > 0) {
    recompute(network.instructions, network.forward_instructions, network.values, backend,
              options.activation_limit);
  }
  place_all_running_stats(parameters);
  place_activations(network);
  place_arguments(network);
  find_final_gradients(network, parameters);
  find_first_reads(network, parameters);
  copy_metadata(network, graph, parameters);
  return network;
}

}  // namespace trireme::model
