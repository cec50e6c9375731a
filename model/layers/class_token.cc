// A trained token before those of a sequence, and trained positions: [T, F] -> [T + 1, F].
#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class ClassToken final : public Layer {
 public:
  explicit ClassToken(const ClassTokenConfig& config) : config_(config) {}
  std::string_view kind() const override { return "class_token"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 2, "[T, F]");
    const int64_t length = inputs[0][0] + 1, width = inputs[0][1];
    Signature signature{.output = {length, width}, .parameters = {}, .running_stats = {}};
    signature.parameters.push_back({.name = "token",
                                    .shape = {width},
                                    .init = vector_initializer(config_.token_init()),
                                    .decays = false});
    if (!config_.positions()) return signature;
    signature.parameters.push_back({.name = "position",
                                    .shape = {length, width},
                                    .init = vector_initializer(config_.position_init()),
                                    .decays = false});
    return signature;
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value(emit.output_shape(), Layout::row_major());
    emit.emit(ops::ClassTokenForward{}, {emit.row_major(emit.input()), emit.parameter(0),
                                         config_.positions() ? emit.parameter(1) : kNoValue, y});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    const TensorSpec& x = emit.spec(emit.input());
    const ValueId dx =
        emit.needs_gradient() ? emit.new_value(x.shape, Layout::row_major()) : kNoValue;
    emit.emit(ops::ClassTokenBackward{},
              {emit.row_major(dy), dx, emit.parameter_gradient(0),
               config_.positions() ? emit.parameter_gradient(1) : kNoValue});
    if (dx == kNoValue) return;
    emit.accumulate_gradient(0, emit.converted(dx, emit.spec(emit.input())));
  }

 private:
  static Initializer vector_initializer(const InitializerConfig& config) {
    if (config.kind_case() == InitializerConfig::KIND_NOT_SET) {
      return {Initializer::Kind::kNormal, 0, 0.02F};
    }
    return initializer(config, 1, 1);
  }

  ClassTokenConfig config_;
};

}  // namespace

std::unique_ptr<Layer> make_class_token(const LayerConfig& config) {
  return std::make_unique<ClassToken>(config.class_token());
}

}  // namespace trireme::model
