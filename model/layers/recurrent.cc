// LSTM and GRU: [T, F] -> [T, hidden], or [T, 2 * hidden] if bidirectional. Parameters have the
// names and shapes of torch.nn.LSTM and torch.nn.GRU.
#include "ops/recurrent.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

constexpr int64_t kMaxHidden = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 1000;

class Recurrent final : public Layer {
 public:
  Recurrent(ops::RecurrentCell cell, const RecurrentConfig& config)
      : cell_(cell), config_(config) {}
  std::string_view kind() const override {
    return cell_ == ops::RecurrentCell::kLstm ? "lstm" : "gru";
  }
  bool is_causal() const override { return !config_.bidirectional(); }
  std::vector<TokenField> token_fields() const override {
    const char* const field =
        cell_ == ops::RecurrentCell::kLstm ? "lstm.document_end" : "gru.document_end";
    return {
        {field, config_.has_document_end() ? std::optional(config_.document_end()) : std::nullopt}};
  }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 2, "[T, F]");
    require_range("hidden", config_.hidden(), kMaxHidden);
    require_range("layers", config_.layers(), kMaxLayers);
    if (!(config_.dropout() >= 0 && config_.dropout() < 1)) {
      throw Error(fmt::format("{}.dropout: must be at least 0 and below 1", kind()));
    }
    require_one_direction("stateful", config_.stateful());
    require_one_direction("document_end", config_.has_document_end());
    const int64_t hidden = config_.hidden(), rows = ops::gates_of(cell_) * hidden;
    const float bound = static_cast<float>(1 / std::sqrt(static_cast<double>(hidden)));
    const Initializer init{Initializer::Kind::kUniform, 0, bound};
    Signature signature{
        .output = {inputs[0][0], directions() * hidden}, .parameters = {}, .running_stats = {}};
    for (int64_t layer = 0; layer < config_.layers(); ++layer) {
      const int64_t features = layer == 0 ? inputs[0][1] : directions() * hidden;
      for (int64_t direction = 0; direction < directions(); ++direction) {
        const auto declare = [&](const char* name, const Shape& shape) {
          signature.parameters.push_back(
              {.name = fmt::format("{}_l{}{}", name, layer, direction == 0 ? "" : "_reverse"),
               .shape = shape,
               .init = init,
               .decays = shape.rank() > 1});
        };
        declare("weight_ih", {rows, features});
        declare("weight_hh", {rows, hidden});
        declare("bias_ih", {rows});
        declare("bias_hh", {rows});
      }
    }
    return signature;
  }

  ValueId forward(Emitter& emit) const override {
    ValueId x = emit.row_major(emit.input());
    for (int64_t layer = 0; layer < config_.layers(); ++layer) {
      if (emit.starts() != kNoValue) {
        x = forward_cached(emit, layer, x);
        continue;
      }
      if (emit.training()) emit.save_for_backward(x);
      ValueId y = forward_direction(emit, layer, 0, x);
      if (config_.bidirectional()) y = joined(emit, y, forward_direction(emit, layer, 1, x));
      x = emit.training() && drops_out(layer) ? dropped_out(emit, layer, y) : y;
    }
    return x;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    dy = emit.row_major(dy);
    for (int64_t layer = config_.layers() - 1; layer >= 0; --layer) {
      if (drops_out(layer)) {
        const ValueId after = dy;
        dy = emit.new_value_like(after);
        emit.emit(ops::DropoutBackward{config_.dropout(), dropout_id(emit, layer)},
                  {after, emit.state(), dy});
      }
      const bool needs_dx = layer > 0 || emit.needs_gradient();
      if (!config_.bidirectional()) {
        dy = backward_direction(emit, layer, 0, dy, needs_dx);
        continue;
      }
      const std::array halves{new_output(emit), new_output(emit)};
      emit.emit(ops::Split{2}, {emit.rows(dy), emit.rows(halves[0]), emit.rows(halves[1])});
      const ValueId from_first = backward_direction(emit, layer, 0, halves[0], needs_dx);
      const ValueId from_last = backward_direction(emit, layer, 1, halves[1], needs_dx);
      if (!needs_dx) return;
      dy = emit.new_value_like(from_first);
      emit.emit(ops::Add{}, {from_first, from_last, dy});
    }
    if (emit.needs_gradient()) {
      emit.accumulate_gradient(0, emit.converted(dy, emit.spec(emit.input())));
    }
  }

 private:
  void require_range(const char* field, int64_t value, int64_t max) const {
    if (value >= 1 && value <= max) return;
    throw Error(fmt::format("{}.{}: must be in [1, {}], got {}", kind(), field, max, value));
  }

  void require_one_direction(const char* field, bool is_set) const {
    if (!is_set || !config_.bidirectional()) return;
    throw Error(fmt::format("{}.{}: cannot be combined with bidirectional", kind(), field));
  }

  int64_t directions() const { return config_.bidirectional() ? 2 : 1; }
  // Returns the index of the first of the four parameters of a layer and direction.
  int parameters_of(int64_t layer, int64_t direction) const {
    return static_cast<int>(4 * (layer * directions() + direction));
  }
  // Returns the tokens that say where documents end, if that is configured.
  ValueId tokens(Emitter& emit) const {
    return config_.has_document_end() ? emit.tokens() : kNoValue;
  }
  // Each layer saves its input, then the output, the workspace and the initial state of each
  // direction.
  ValueId saved_input(Emitter& emit, int64_t layer) const {
    return emit.saved(static_cast<int>(layer * saved_by_layer()));
  }
  ValueId saved(Emitter& emit, int64_t layer, int64_t direction, int64_t which) const {
    return emit.saved(static_cast<int>(layer * saved_by_layer() + 1 + 3 * direction + which));
  }
  int64_t saved_by_layer() const { return 1 + 3 * directions(); }

  // Returns a new value for the output of one direction.
  ValueId new_output(Emitter& emit) const {
    Shape shape = emit.output_shape();
    shape[2] = config_.hidden();
    return emit.new_value(shape, Layout::row_major());
  }

  ValueId forward_direction(Emitter& emit, int64_t layer, int64_t direction, ValueId x) const {
    const ValueId y = new_output(emit);
    const ValueId workspace = emit.training() ? emit.workspace() : kNoValue;
    const int first = parameters_of(layer, direction);
    Emitter::State state;
    if (config_.stateful()) {
      state =
          emit.carried_state(fmt::format("l{}", layer), {ops::states_of(cell_), config_.hidden()});
    }
    emit.emit(
        ops::RecurrentForward{
            .cell = cell_, .reverse = direction == 1, .document_end = config_.document_end()},
        {x, emit.parameter(first), emit.parameter(first + 1), emit.parameter(first + 2),
         emit.parameter(first + 3), state.before, tokens(emit), y, state.after, workspace});
    if (emit.training()) {
      emit.save_for_backward(y);
      emit.save_for_backward(workspace);
      emit.save_for_backward(state.before);
    }
    return y;
  }

  // Returns the gradient of the input, or kNoValue unless needs_dx.
  ValueId backward_direction(Emitter& emit, int64_t layer, int64_t direction, ValueId dy,
                             bool needs_dx) const {
    const ValueId x = saved_input(emit, layer);
    const ValueId dx = needs_dx ? emit.new_value_like(x) : kNoValue;
    const int first = parameters_of(layer, direction);
    const auto gradient = [&](int i) {
      return emit.trained() ? emit.parameter_gradient(first + i) : kNoValue;
    };
    const std::array gradients{gradient(0), gradient(1), gradient(2), gradient(3)};
    emit.emit(
        ops::RecurrentBackward{
            .cell = cell_, .reverse = direction == 1, .document_end = config_.document_end()},
        {x, emit.parameter(first), emit.parameter(first + 1), saved(emit, layer, direction, 2),
         tokens(emit), saved(emit, layer, direction, 0), saved(emit, layer, direction, 1), dy, dx,
         gradients[0], gradients[1], gradients[2], gradients[3]});
    return dx;
  }

  // The states after all rows are kept, so that sequences go on at any of them.
  ValueId forward_cached(Emitter& emit, int64_t layer, ValueId x) const {
    const ValueId y = new_output(emit);
    const ValueId cache = emit.new_cache(
        emit.gradient_dtype(),
        {emit.batch(), emit.sequence_length(), ops::states_of(cell_), config_.hidden()});
    const int first = parameters_of(layer, 0);
    emit.emit(ops::CachedRecurrent{.cell = cell_, .document_end = config_.document_end()},
              {x, emit.parameter(first), emit.parameter(first + 1), emit.parameter(first + 2),
               emit.parameter(first + 3), emit.starts(), tokens(emit), cache, y});
    return y;
  }

  static ValueId joined(Emitter& emit, ValueId first, ValueId second) {
    const ValueId y = emit.new_value(emit.output_shape(), Layout::row_major());
    emit.emit(ops::Concat{2}, {emit.rows(y), emit.rows(first), emit.rows(second)});
    return y;
  }

  // Dropout follows every layer but the last.
  bool drops_out(int64_t layer) const {
    return config_.dropout() > 0 && layer + 1 < config_.layers();
  }
  static uint64_t dropout_id(Emitter& emit, int64_t layer) {
    return emit.layer_id() + static_cast<uint64_t>(layer);
  }
  ValueId dropped_out(Emitter& emit, int64_t layer, ValueId x) const {
    const ValueId y = emit.new_value_like(x);
    emit.emit(ops::DropoutForward{config_.dropout(), dropout_id(emit, layer)},
              {x, emit.state(), y});
    return y;
  }

  ops::RecurrentCell cell_;
  RecurrentConfig config_;
};

}  // namespace

std::unique_ptr<Layer> make_lstm(const LayerConfig& config) {
  return std::make_unique<Recurrent>(ops::RecurrentCell::kLstm, config.lstm());
}
std::unique_ptr<Layer> make_gru(const LayerConfig& config) {
  return std::make_unique<Recurrent>(ops::RecurrentCell::kGru, config.gru());
}

}  // namespace trireme::model
