#include "model/emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/alignment.h"
#include "core/random.h"
#include "model/graph.h"
#include "model/program.h"
#include "ops/step_state.h"

namespace trireme::model {
namespace {

using Indices = std::unordered_map<std::string, int>;  // by name

template <class Named>
Indices indices_of(const std::vector<Named>& all) {
  Indices indices;
  for (size_t i = 0; i < all.size(); ++i) indices.emplace(all[i].name, static_cast<int>(i));
  return indices;
}

// Add a parameter or a running statistic, unless there is one of this name, and return its index.
// Throws Error if layers that share a parameter disagree about its shape.
int declare(const std::string& name, const Signature::Parameter& declared, Indices& indices,
            Parameters& parameters) {
  const auto index = static_cast<int>(parameters.all.size());
  const auto [found, is_new] = indices.try_emplace(name, index);
  if (is_new) {
    const DType array = parameters.array_dtype();
    parameters.all.push_back({.name = name,
                              .spec = {array, declared.shape, Layout::any()},
                              .dtype = declared.full_precision ? array : parameters.dtype,
                              .init = declared.init,
                              .decays = declared.decays,
                              .frozen = declared.frozen,
                              .index = index});
    return index;
  }
  const Shape& shape = parameters.all[found->second].spec.shape;
  if (shape != declared.shape && !declared.by_position) {
    throw Error(fmt::format("parameter {} is {} in this network and {} in another that shares it",
                            name, declared.shape.to_string(), shape.to_string()));
  }
  return found->second;
}

int declare(const Node& node, const Signature::RunningStat& declared, Indices& indices,
            Parameters& parameters) {
  const std::string name = node.name + "." + declared.name;
  const auto index = static_cast<int>(parameters.running_stats.size());
  const auto [found, is_new] = indices.try_emplace(name, index);
  if (!is_new) return found->second;
  parameters.running_stats.push_back(
      {.name = name,
       .spec = {parameters.array_dtype(), declared.shape, Layout::row_major()},
       .initial = declared.initial,
       .frozen = !node.signature.trained(),
       .index = index});
  return index;
}

}  // namespace

Emitter::Emitter(const Graph& graph, ops::Backend& backend, const CompileOptions& options,
                 Parameters& parameters)
    : graph_(graph),
      backend_(backend),
      options_(options),
      parameters_(parameters),
      nodes_(graph.nodes.size()) {
  declare_parameters();
  const TensorSpec &input = graph.input.input, &target = graph.input.target;
  input_ = add_port(Port::kInput, {input.dtype, with_batch(input.shape), input.layout});
  target_ = add_port(Port::kTarget, {target.dtype, with_batch(target.shape), Layout::row_major()});
  state_ =
      add_port(Port::kState, {DType::kU8, {int64_t{sizeof(ops::StepState)}}, Layout::row_major()});
  if (options.part > 0) {
    starts_ = add_port(Port::kStarts, {DType::kI32, {options.batch}, Layout::row_major()});
  }
  metrics_ = add_value({.spec = {gradient_dtype(), {ops::kMetricCount}, Layout::row_major()},
                        .home = Value::Home::kMetrics});
  chunked_loss_ = find_chunked_loss();
}

std::optional<ops::SoftmaxCrossEntropy> Emitter::find_chunked_loss() const {
  const Node& loss = graph_.nodes.back();
  if (!options_.loss || options_.output || loss.inputs[0] < 0) return std::nullopt;
  const Node& head = graph_.nodes[loss.inputs[0]];
  const int64_t bytes = options_.batch * head.signature.output.elements() *
                        static_cast<int64_t>(size_of(parameters_.dtype));
  const bool chunked = bytes > ops::LinearCrossEntropy::kChunkBytes && head.layer->is_linear() &&
                       spec(target_).dtype == DType::kI32;
  return chunked ? loss.layer->as_cross_entropy(*this) : std::nullopt;
}

void Emitter::declare_parameters() {
  Indices known = indices_of(parameters_.all), known_stats = indices_of(parameters_.running_stats);
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    for (const Signature::Parameter& declared : node.signature.parameters) {
      nodes_[n].parameters.push_back(
          declare(parameter_name(node, declared), declared, known, parameters_));
    }
    for (const Signature::RunningStat& declared : node.signature.running_stats) {
      nodes_[n].running_stats.push_back(declare(node, declared, known_stats, parameters_));
    }
  }
  for (size_t i = 0; i < parameters_.all.size(); ++i) {
    const Parameter& parameter = parameters_.all[i];
    const TensorSpec read{parameter.dtype, parameter.spec.shape, parameter.spec.layout};
    parameter_values_.push_back(
        add_value({.spec = read, .home = Value::Home::kParameter, .index = static_cast<int>(i)}));
    gradient_values_.push_back(add_value(
        {.spec = parameter.spec, .home = Value::Home::kGradient, .index = static_cast<int>(i)}));
  }
  gradient_layouts_.resize(parameters_.all.size());
  gradient_written_.resize(parameters_.all.size(), options_.accumulate);
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    nodes_[n].needs_gradient =
        node.signature.trained() || std::ranges::any_of(node.inputs, [&](int input) {
          return input >= 0 && nodes_[input].needs_gradient;
        });
  }
  for (size_t i = 0; i < parameters_.running_stats.size(); ++i) {
    running_stat_values_.push_back(add_value({.spec = parameters_.running_stats[i].spec,
                                              .home = Value::Home::kRunningStat,
                                              .index = static_cast<int>(i)}));
  }
}

ValueId Emitter::add_value(Value value) {
  value.storage = storages_++;
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId Emitter::add_port(Port port, const TensorSpec& spec) {
  return add_value({.spec = spec, .home = Value::Home::kPort, .index = static_cast<int>(port)});
}

Shape Emitter::with_batch(const Shape& shape) const {
  std::vector<int64_t> extents{options_.batch};
  extents.insert(extents.end(), shape.begin(), shape.end());
  if (options_.part > 0 && shape.rank() > 0) extents[1] = options_.part;
  return Shape(extents);
}

// Emits the normalization of the input and its cast to the compute dtype, if needed.
void Emitter::emit_input() {
  const ModelInput& in = graph_.input;
  if (in.input.dtype == DType::kI32) return;  // tokens
  const bool plain =
      in.scale == 1 && in.mean == std::vector<float>{0} && in.stddev == std::vector<float>{1};
  if (plain && in.input.dtype == parameters_.dtype) return;
  const ValueId x = new_value(spec(input_).shape);
  emit(ops::NormalizeInput{.scale = in.scale, .mean = in.mean, .stddev = in.stddev}, {input_, x});
  input_ = x;
}

void Emitter::forward() {
  emit_input();
  for (size_t n = 0; n < emitted_layers(); ++n) {
    current_ = static_cast<int>(n);
    const Layer& layer = *graph_.nodes[n].layer;
    if (!has_chunked_loss()) {
      nodes_[n].output = layer.forward(*this);
    } else if (!options_.training) {
      layer.emit_with_loss(*this, *chunked_loss_);
    }
  }
  forward_instructions_ = static_cast<int>(instructions_.size());
}

void Emitter::emit_output() {
  current_ = static_cast<int>(graph_.nodes.size()) - 1;  // the loss
  const ValueId read = input();
  const ValueId output =
      add_port(Port::kOutput, {DType::kF32, spec(read).shape, Layout::row_major()});
  emit(ops::Reorder{}, {read, output});
  forward_instructions_ = static_cast<int>(instructions_.size());
}

void Emitter::backward() {
  for (size_t n = emitted_layers(); n-- > 0;) {
    if (!nodes_[n].needs_gradient) continue;
    current_ = static_cast<int>(n);
    const Layer& layer = *graph_.nodes[n].layer;
    if (has_chunked_loss()) {
      layer.emit_with_loss(*this, *chunked_loss_);
    } else {
      layer.backward(*this, nodes_[n].gradient);
    }
    for (auto [parameter, temporary] : pending_) {
      const ValueId sum = gradient_values_[parameter];
      emit(ops::Add{}, {sum, temporary, sum});
    }
    pending_.clear();
  }
}

size_t Emitter::emitted_layers() const {
  return graph_.nodes.size() - (options_.loss && !chunked_loss_ ? 0 : 1);
}

bool Emitter::has_chunked_loss() const {
  return chunked_loss_ && current_ == graph_.nodes.back().inputs[0];
}

ValueId Emitter::target_rows() {
  if (spec(target_).dtype != DType::kI32) return target_;
  return view(target_, {spec(target_).shape.elements()});
}

uint64_t Emitter::layer_id() const { return name_hash(graph_.nodes[current_].name); }

int Emitter::inputs() const { return static_cast<int>(graph_.nodes[current_].inputs.size()); }

ValueId Emitter::input(int i) const {
  const int node = graph_.nodes[current_].inputs[i];
  return node < 0 ? input_ : nodes_[node].output;
}

ValueId Emitter::output() const { return nodes_[current_].output; }

Shape Emitter::output_shape() const { return with_batch(graph_.nodes[current_].signature.output); }

int64_t Emitter::sequence_length() const { return graph_.nodes[current_].signature.output[0]; }

ValueId Emitter::parameter(int i) const { return parameter_values_[parameter_index(i)]; }

int Emitter::parameter_index(int i) const { return nodes_[current_].parameters[i]; }

ValueId Emitter::gradient_array(int i) {
  const auto index = static_cast<size_t>(parameter_index(i));
  const ValueId gradient = gradient_values_[index];
  // The layout of the parameter is known, since its forward pass has been planned. If one operation
  // does both passes, its plan chooses the layout.
  if (!parameters_.all[index].frozen) {
    values_[gradient].spec.layout = spec(parameter_values_[index]).layout;
  }
  return gradient;
}

ValueId Emitter::parameter_gradient(int i) {
  const auto index = static_cast<size_t>(parameter_index(i));
  const ValueId gradient = gradient_array(i);
  if (parameters_.all[index].frozen) return new_value_like(gradient);
  if (!gradient_written_[index]) {
    gradient_written_[index] = true;
    return gradient;
  }
  const ValueId temporary = new_value_like(gradient);
  pending_.emplace_back(index, temporary);
  return temporary;
}

ValueId Emitter::gradient_sum(int i) {
  const auto index = static_cast<size_t>(parameter_index(i));
  const ValueId gradient = gradient_array(i);
  const bool has_sum = gradient_written_[index] && !parameters_.all[index].frozen;
  return has_sum && spec(gradient).layout == Layout::row_major() ? gradient : kNoValue;
}

ValueId Emitter::running_stat(int i) const {
  const int index = nodes_[current_].running_stats[i];
  return running_stat_values_[index];
}

void Emitter::save_for_backward(ValueId value) { nodes_[current_].saved.push_back(value); }

ValueId Emitter::saved(int i) const { return nodes_[current_].saved[i]; }

ValueId Emitter::new_value(const Shape& shape, Layout layout) {
  return new_value(parameters_.dtype, shape, std::move(layout));
}

ValueId Emitter::new_value(DType dtype, const Shape& shape, Layout layout) {
  return add_value({.spec = {dtype, shape, std::move(layout)}});
}

ValueId Emitter::new_value_like(ValueId value) { return add_value({.spec = spec(value)}); }

ValueId Emitter::sequence_lengths(int32_t padding) {
  const auto [found, added] = sequence_lengths_.try_emplace(padding, kNoValue);
  if (added) {
    found->second = new_value(DType::kI32, {batch()}, Layout::row_major());
    emit(ops::SequenceLengths{padding}, {input_, found->second});
  }
  return found->second;
}

ValueId Emitter::document_starts(int32_t end) {
  const auto [found, added] = document_starts_.try_emplace(end, kNoValue);
  if (added) {
    const ValueId cache = starts_ == kNoValue
                              ? kNoValue
                              : new_cache(DType::kI32, {batch(), graph_.input.input.shape[0]});
    found->second = new_value(DType::kI32, spec(input_).shape, Layout::row_major());
    emit(ops::DocumentStarts{end}, {input_, starts_, cache, found->second});
  }
  return found->second;
}

ValueId Emitter::new_cache(DType dtype, const Shape& shape) {
  const ValueId cache = add_port(Port::kCache, {dtype, shape, Layout::row_major()});
  values_[cache].offset = cache_bytes_;
  cache_bytes_ += device_aligned(spec(cache).bytes());
  return cache;
}

Emitter::State Emitter::carried_state(const std::string& name, const Shape& row) {
  if (!options_.carry_states) return {};
  std::vector<int64_t> extents{batch()};
  extents.insert(extents.end(), row.begin(), row.end());
  const TensorSpec spec{gradient_dtype(), Shape(extents), Layout::row_major()};
  const State state{add_port(Port::kStatesBefore, spec), add_port(Port::kStatesAfter, spec)};
  for (const ValueId value : {state.before, state.after}) {
    values_[value].offset = carried_row_bytes_;
  }
  const size_t row_bytes = spec.bytes() / static_cast<size_t>(batch());
  carried_row_bytes_ += row_bytes;
  const std::string& layer = graph_.nodes[current_].name;
  carried_states_.push_back({layer + "." + name, row, row_bytes});
  return state;
}

ValueId Emitter::workspace() { return add_value({.spec = ops::unsized_workspace()}); }

ValueId Emitter::view(ValueId value, const Shape& shape) {
  Value same = values_[value];
  same.spec.shape = shape;
  values_.push_back(std::move(same));
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId Emitter::view(ValueId value, const Shape& shape, Layout layout) {
  const ValueId same = view(value, shape);
  values_[same].spec.layout = std::move(layout);
  return same;
}

ValueId Emitter::row_major(ValueId value) {
  return converted(value, spec(value).with(Layout::row_major()));
}

ValueId Emitter::rows(ValueId value) {
  const Shape& shape = spec(value).shape;
  if (shape.rank() == 2) return value;
  const int64_t width = shape[shape.rank() - 1];
  return view(row_major(value), {shape.elements() / width, width});
}

ValueId Emitter::new_output() {
  const Shape shape = output_shape();
  return new_value(shape, shape.rank() == 2 ? Layout::any() : Layout::row_major());
}

ValueId Emitter::converted(ValueId value, const TensorSpec& wanted) {
  if (spec(value) == wanted) return value;
  const ValueId copy = add_value({.spec = wanted});
  emit(ops::Reorder{}, {value, copy});
  return copy;
}

void Emitter::emit(const ops::Op& op, std::vector<ValueId> args) {
  std::vector<TensorSpec> asked;
  for (ValueId arg : args) asked.push_back(arg == kNoValue ? ops::absent() : spec(arg));
  std::unique_ptr<ops::OpPlan> plan = backend_.plan(op, asked);
  std::vector<std::pair<ValueId, ValueId>> reorders_after;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == kNoValue) continue;
    Value& value = values_[args[i]];
    const TensorSpec& wanted = plan->specs()[i];
    const bool written = ops::is_output(op, static_cast<int>(i));
    if (value.spec.layout.is_any()) {
      // The plan may choose the dtype of an input of undecided layout; outputs are as declared.
      const DType dtype = written ? value.spec.dtype : wanted.dtype;
      value.spec = wanted;
      value.spec.dtype = dtype;
    }
    if (value.spec == wanted) continue;
    if (written) {
      note_gradient_layout(args[i], wanted.layout);
      const ValueId temporary = add_value({.spec = wanted});
      reorders_after.emplace_back(temporary, args[i]);
      args[i] = temporary;
    } else {
      args[i] = converted(args[i], wanted);
    }
  }
  push(op, std::move(args), std::move(plan));
  for (auto [from, to] : reorders_after) emit(ops::Reorder{}, {from, to});
}

void Emitter::push(const ops::Op& op, std::vector<ValueId> args,
                   std::unique_ptr<ops::OpPlan> plan) {
  instructions_.push_back(
      {.op = op, .plan = std::move(plan), .args = std::move(args), .node = current_});
}

void Emitter::note_gradient_layout(ValueId value, const Layout& wanted) {
  for (size_t i = 0; i < gradient_values_.size(); ++i) {
    if (gradient_values_[i] == value) gradient_layouts_[i] = wanted;
  }
  for (auto [parameter, temporary] : pending_) {
    if (temporary == value) gradient_layouts_[parameter] = wanted;
  }
}

bool Emitter::adopt_gradient_layouts() {
  bool any = false;
  for (size_t i = 0; i < gradient_layouts_.size(); ++i) {
    if (!gradient_layouts_[i]) continue;
    parameters_.all[i].spec.layout = *gradient_layouts_[i];
    any = true;
  }
  return any;
}

void Emitter::all_reduce(ValueId value) {
  instructions_.push_back({.op = {},
                           .plan = nullptr,
                           .args = {value},
                           .collective = options_.collective,
                           .node = current_});
}

bool Emitter::trained() const { return graph_.nodes[current_].signature.trained(); }

bool Emitter::needs_gradient(int i) const {
  const int from = graph_.nodes[current_].inputs[i];
  return from >= 0 && nodes_[from].needs_gradient;
}

void Emitter::accumulate_gradient(int i, ValueId gradient) {
  if (!needs_gradient(i)) return;
  const int from = graph_.nodes[current_].inputs[i];
  ValueId& total = nodes_[from].gradient;
  if (total == kNoValue) {
    total = gradient;
    return;
  }
  const ValueId sum = new_value_like(total);
  emit(ops::Add{}, {total, gradient, sum});
  total = sum;
}

}  // namespace trireme::model
