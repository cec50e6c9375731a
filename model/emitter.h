// Where layers put their operations. Each operation is planned at once, so that the layouts which
// plans choose are known to whatever comes after; where a plan wants another layout than a value
// has, a reorder is put between.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/collective.h"
#include "model/parameters.h"
#include "ops/backend.h"

namespace trireme::model {

struct Graph;

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

// A tensor that operations read and write: in memory that the planner places, or in one of the
// arrays that outlive a step.
struct Value {
  enum class Home { kActivations, kPort, kParameter, kGradient, kRunning, kMetrics };
  TensorSpec spec;
  Home home = Home::kActivations;
  int index = 0;    // of the parameter or running value, or which Port
  int storage = 0;  // values of one storage are the same memory
};

struct Instruction {
  ops::Op op;  // meaningless with a collective
  std::unique_ptr<ops::OpPlan> plan;
  std::vector<ValueId> args;
  Collective* collective = nullptr;  // sums args[0] over ranks
  int node = -1;                     // whose layer emitted it
  bool writes(int arg) const { return collective != nullptr || ops::is_output(op, arg); }
};

class Emitter {
 public:
  // Signatures' parameters are looked up in `parameters` by name and added where missing.
  Emitter(const Graph& graph, ops::Backend& backend, int64_t batch, bool training, bool accumulate,
          Collective* collective, Parameters& parameters);

  // Emits the whole network.
  void forward();
  void backward();
  // After forward: hands out what the loss read, in f32 and row-major.
  void output_of_network();

  // --- For layers, about the layer at hand.
  bool training() const { return training_; }
  uint64_t layer_id() const;  // a stable number for its name
  Collective* collective() const { return collective_; }
  int inputs() const;
  ValueId input(int i = 0) const;
  ValueId output() const;      // what its forward returned
  Shape output_shape() const;  // as inferred, with the batch in front
  ValueId parameter(int i) const;
  // Whether any of its parameters is; else their gradients need not be computed.
  bool trained() const;
  // Where it goes; of a frozen parameter nowhere.
  ValueId parameter_gradient(int i);
  ValueId running(int i) const;
  // Keeps a value from forward for backward.
  void keep(ValueId value);
  ValueId kept(int i) const;

  // A new value of this shape, batch included; its layout is chosen by the first plan that sees it.
  ValueId fresh(const Shape& shape, Layout layout = Layout::any());
  ValueId fresh(DType dtype, const Shape& shape, Layout layout);
  ValueId fresh_like(ValueId value);
  ValueId workspace();
  // The same memory under another shape; row-major values only.
  ValueId view(ValueId value, const Shape& shape);
  // The value itself where it is like that already, else a reordered copy.
  ValueId converted(ValueId value, const TensorSpec& wanted);
  ValueId row_major(ValueId value);

  ValueId state() const { return state_; }
  ValueId target() const { return target_; }
  ValueId metrics() const { return metrics_; }
  const TensorSpec& spec(ValueId value) const { return values_[static_cast<size_t>(value)].spec; }
  int64_t batch() const { return batch_; }
  // What gradients and statistics are kept in, whatever the network computes in: f32, or f64 in the
  // reference.
  DType gradient_dtype() const { return parameters_.array_dtype(); }

  void emit(const ops::Op& op, std::vector<ValueId> args);
  void all_reduce(ValueId value);

  // Whether anything is trained in what computes that input.
  bool needs_gradient(int i = 0) const;
  void give_gradient(int i, ValueId gradient);

  // --- For the compiler.
  std::vector<Value>& values() { return values_; }
  std::vector<Instruction>& instructions() { return instructions_; }
  int forward_instructions() const { return forward_instructions_; }
  // Gives parameters the layouts that the plans of their gradients asked for in vain; whether there
  // were any.
  bool adopt_gradient_layouts();

 private:
  struct NodeState {
    ValueId output = kNoValue;
    ValueId gradient = kNoValue;  // of the output, summed over its readers
    bool needs_gradient = false;  // something is trained here or in what is read
    std::vector<ValueId> kept;
    std::vector<int> parameters;  // indices into Parameters
    std::vector<int> running;
  };

  ValueId add_value(Value value);
  void push(const ops::Op& op, std::vector<ValueId> args, std::unique_ptr<ops::OpPlan> plan);
  void note_gradient_layout(ValueId value, const Layout& wanted);
  void declare_parameters();
  void emit_input();

  const Graph& graph_;
  ops::Backend& backend_;
  int64_t batch_;
  bool training_;
  bool accumulate_;
  Collective* collective_;
  Parameters& parameters_;

  std::vector<Value> values_;
  std::vector<Instruction> instructions_;
  std::vector<NodeState> nodes_;
  std::vector<ValueId> parameter_values_;
  std::vector<ValueId> gradient_values_;
  std::vector<ValueId> running_values_;
  // Gradients that the layer at hand has written aside, to be added to their place.
  std::vector<std::pair<int, ValueId>> pending_;
  // Of gradients, by parameter: where a plan asked for another than the parameter's.
  std::vector<std::optional<Layout>> gradient_layouts_;
  ValueId input_ = kNoValue;
  ValueId target_ = kNoValue;
  ValueId state_ = kNoValue;
  ValueId metrics_ = kNoValue;
  int storages_ = 0;
  int current_ = -1;
  int forward_instructions_ = 0;
};

}  // namespace trireme::model
