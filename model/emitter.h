// Collects the operations that layers emit. Each operation is planned immediately, so that the
// layouts chosen by its plan are known to later operations. If a plan needs a layout that differs
// from that of the value, a reorder is inserted.
#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/collective.h"
#include "model/compile_options.h"
#include "model/parameters.h"
#include "ops/backend.h"

namespace trireme::model {

struct Graph;
enum class Port : uint8_t;

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

// A tensor that operations read and write, either in memory that the planner places
// (kActivations) or in one of the arrays that persist between steps.
struct Value {
  enum class Home { kActivations, kPort, kParameter, kGradient, kRunningStat, kMetrics };
  TensorSpec spec;
  Home home = Home::kActivations;
  int index = 0;      // index of the parameter or running statistic, or the Port
  int storage = 0;    // values with the same storage share memory
  size_t offset = 0;  // in the memory of the port, or of transient gradients in that of the buckets
};

struct Instruction {
  ops::Op op;  // unused if `collective` is set
  std::shared_ptr<const ops::OpPlan> plan;
  std::vector<ValueId> args;
  Collective* collective = nullptr;  // if set, the instruction sums args[0] over the ranks
  int node = -1;                     // the node that emitted it; -1 for the input
  int repeated = -1;                 // the instruction of the forward pass that it repeats, if any
  bool writes(int arg) const { return collective != nullptr || ops::is_output(op, arg); }
};

// A state that a recurrent layer carries from one batch to the next.
struct CarriedState {
  std::string name;  // "rnn.l0", of the first layer of 'rnn'
  Shape row;         // of one sequence
  size_t row_bytes = 0;
};

class Emitter {
 public:
  // Looks up the parameters of all layers in `parameters` by name, and adds those that are missing.
  Emitter(const Graph& graph, ops::Backend& backend, const CompileOptions& options,
          Parameters& parameters);

  // Emits the forward or backward pass of the whole network.
  void forward();
  void backward();
  // Copies the input of the loss to Port::kOutput, as row-major f32. Call after forward().
  void emit_output();

  // --- For layers: properties and values of the layer being emitted.
  bool training() const { return options_.training; }
  uint64_t layer_id() const;  // a hash of the layer's name
  Collective* collective() const { return options_.collective; }
  int inputs() const;
  ValueId input(int i = 0) const;
  ValueId output() const;      // the value returned by the layer's forward()
  Shape output_shape() const;  // as inferred, with the batch as first dimension
  // Returns the length of the sequence that is the layer's output. output_shape() is shorter if the
  // program reads sequences in parts.
  int64_t sequence_length() const;
  ValueId parameter(int i) const;
  // Returns whether any of the layer's parameters is trained. If not, their gradients need not be
  // computed.
  bool trained() const;
  // Returns the value to which the gradient of parameter i must be written. For a frozen parameter
  // it is a temporary that nothing reads.
  ValueId parameter_gradient(int i);
  ValueId running_stat(int i) const;
  // Saves a value of the forward pass for the backward pass; saved(i) returns the i-th one.
  void save_for_backward(ValueId value);
  ValueId saved(int i) const;

  // Returns the gradient array's part of parameter i if a gradient has been written there, to which
  // the layer must add its own, otherwise kNoValue; then use parameter_gradient().
  ValueId gradient_sum(int i);
  // Returns a new value of this shape, which includes the batch. The first plan that uses it
  // chooses its layout.
  ValueId new_value(const Shape& shape, Layout layout = Layout::any());
  ValueId new_value(DType dtype, const Shape& shape, Layout layout);
  ValueId new_value_like(ValueId value);
  // Returns a new value whose size is chosen by the plan that writes it.
  ValueId workspace();
  // Returns a value with the same memory and a different shape. Requires a row-major value.
  ValueId view(ValueId value, const Shape& shape);
  // Returns a value with the same memory, read as this shape in this layout.
  ValueId view(ValueId value, const Shape& shape, Layout layout);
  // Returns the value itself if it has the wanted spec, otherwise a reordered copy.
  ValueId converted(ValueId value, const TensorSpec& wanted);
  ValueId row_major(ValueId value);
  // Returns the value as the matrix that 2-D operations compute: itself if it is [B, F], or for a
  // sequence [B, T, F] a view as [B * T, F].
  ValueId rows(ValueId value);
  // Returns a new value for the layer's output. That of a sequence is row-major, see rows().
  ValueId new_output();

  // Returns the positions at which the parts of the sequences start, i32 [batch], or kNoValue if
  // the program reads whole sequences.
  ValueId starts() const { return starts_; }
  // Returns row-major memory that keeps its contents between the passes over the parts.
  ValueId new_cache(const Shape& shape) { return new_cache(parameters_.dtype, shape); }
  ValueId new_cache(DType dtype, const Shape& shape);
  // Returns the state that the layer carries between batches, before and after the pass: row-major
  // values of gradient_dtype(), in which each sequence has a `row`. They are kNoValue if the
  // program carries no states. `name` distinguishes the states of a layer.
  struct State {
    ValueId before = kNoValue;
    ValueId after = kNoValue;
  };
  State carried_state(const std::string& name, const Shape& row);
  // Returns the tokens that the network reads, i32 [batch, T].
  ValueId tokens() const { return input_; }
  // Return values computed from the tokens that the network reads, see ops/key_ranges.h. All layers
  // share them.
  ValueId sequence_lengths(int32_t padding);
  ValueId document_starts(int32_t end);

  ValueId state() const { return state_; }
  ValueId target() const { return target_; }
  // Returns the targets with one row for each row of the loss's input: labels [B, T] as [B * T].
  ValueId target_rows();
  ValueId metrics() const { return metrics_; }
  // Returns a reference that stays valid; the layout of the value may be chosen later.
  const TensorSpec& spec(ValueId value) const { return values_[static_cast<size_t>(value)].spec; }
  int64_t batch() const { return options_.batch; }
  // Returns the dtype of gradients and statistics, which does not depend on the compute dtype: f32,
  // or f64 in the reference backend.
  DType gradient_dtype() const { return parameters_.array_dtype(); }

  // Plans an operation and appends it. kNoValue stands for an optional argument that is absent.
  void emit(const ops::Op& op, std::vector<ValueId> args);
  // Appends a sum of the value over all ranks, in place.
  void all_reduce(ValueId value);

  // Returns whether input i depends on a trained parameter.
  bool needs_gradient(int i = 0) const;
  // Adds to the gradient of input i, unless the input needs no gradient.
  void accumulate_gradient(int i, ValueId gradient);

  // --- For the compiler.
  std::deque<Value>& values() { return values_; }
  std::vector<Instruction>& instructions() { return instructions_; }
  int forward_instructions() const { return forward_instructions_; }
  size_t cache_bytes() const { return cache_bytes_; }
  const std::vector<CarriedState>& carried_states() const { return carried_states_; }
  // For each parameter whose gradient had to be reordered, sets the parameter's layout to that in
  // which the plan writes the gradient. Returns whether any layout has changed.
  bool adopt_gradient_layouts();

 private:
  struct NodeState {
    ValueId output = kNoValue;
    ValueId gradient = kNoValue;  // gradient of the output, summed over its readers
    bool needs_gradient = false;  // whether the output depends on a trained parameter
    std::vector<ValueId> saved;
    std::vector<int> parameters;  // indices into Parameters
    std::vector<int> running_stats;
  };

  // Returns the index in Parameters of the current layer's parameter i, and its gradient in the
  // array.
  int parameter_index(int i) const;
  ValueId gradient_array(int i);
  ValueId add_value(Value value);
  ValueId add_port(Port port, const TensorSpec& spec);
  // Returns the shape with the batch as first dimension, and the part in place of the sequence.
  Shape with_batch(const Shape& shape) const;
  void push(const ops::Op& op, std::vector<ValueId> args, std::unique_ptr<ops::OpPlan> plan);
  void note_gradient_layout(ValueId value, const Layout& wanted);
  void declare_parameters();
  void emit_input();
  // Returns the loss if it is emitted with the layer that it reads, since that layer's output would
  // be large; see Layer::emit_with_loss().
  std::optional<ops::SoftmaxCrossEntropy> find_chunked_loss() const;
  bool has_chunked_loss() const;  // whether the current layer is emitted with the loss
  // Returns the number of layers to emit: all, or all but the loss.
  size_t emitted_layers() const;

  const Graph& graph_;
  ops::Backend& backend_;
  CompileOptions options_;
  Parameters& parameters_;

  std::deque<Value> values_;  // references to a spec() stay valid when values are added
  std::vector<Instruction> instructions_;
  std::vector<NodeState> nodes_;
  std::vector<ValueId> parameter_values_;
  std::vector<ValueId> gradient_values_;
  std::vector<bool> gradient_written_;  // by parameter: whether a layer has written its gradient
  std::vector<ValueId> running_stat_values_;
  // Parameter index and temporary gradient of the current layer, to be added to the gradient array.
  std::vector<std::pair<int, ValueId>> pending_;
  // By parameter: the gradient layout that a plan asked for, if it is not the parameter's layout.
  std::vector<std::optional<Layout>> gradient_layouts_;
  ValueId input_ = kNoValue;
  ValueId target_ = kNoValue;
  ValueId state_ = kNoValue;
  ValueId metrics_ = kNoValue;
  ValueId starts_ = kNoValue;
  std::map<int32_t, ValueId> sequence_lengths_;  // by the padding token
  std::map<int32_t, ValueId> document_starts_;   // by the token that ends a document
  std::optional<ops::SoftmaxCrossEntropy> chunked_loss_;
  int storages_ = 0;
  int current_ = -1;
  int forward_instructions_ = 0;
  size_t cache_bytes_ = 0;
  std::vector<CarriedState> carried_states_;
  size_t carried_row_bytes_ = 0;  // of all carried states of a sequence
};

}  // namespace trireme::model
