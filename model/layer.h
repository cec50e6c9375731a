// What every layer says of itself: its shapes, its parameters, its forward and backward operations.
// It never mentions a device. One file in layers/ and one message in model.proto each.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "model/emitter.h"
#include "model/parameters.h"

namespace trireme {
class LayerConfig;
}  // namespace trireme

namespace trireme::model {

// What follows from the shapes of a layer's inputs (without the batch).
struct Signature {
  struct Parameter {
    std::string name;  // "weight"
    Shape shape;
    Initializer init;
    bool decays = true;
    bool full_precision = false;  // read from the masters even where the network computes in less
    bool frozen = false;          // set by ModelConfig::freeze
  };
  struct Running {
    std::string name;  // "running_mean"
    Shape shape;
    float initial = 0;
  };
  Shape output;
  std::vector<Parameter> parameters;
  std::vector<Running> running;
  // Whether any of the parameters is.
  bool trained() const {
    return std::ranges::any_of(parameters, [](const Parameter& p) { return !p.frozen; });
  }
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string_view kind() const = 0;  // its field in LayerConfig

  // Throws Error saying what it got and what would fit; the caller adds the layer's name.
  virtual Signature infer(std::span<const Shape> inputs) const = 0;

  // Emits the operations that compute the output, and returns it.
  virtual ValueId forward(Emitter& emit) const = 0;
  // Given the gradient of the output: writes the parameters' gradients and gives each input its
  // own.
  virtual void backward(Emitter& emit, ValueId dy) const = 0;

  // Takes over the work of the only layer that reads this one, where one pass over memory can do
  // both. `next`'s other inputs become inputs of this layer, after its own.
  virtual bool absorb(const Layer& /*next*/) { return false; }
  // What another layer may absorb: a bare activation, or a sum of two inputs.
  virtual ops::Activation as_activation() const { return ops::Activation::kNone; }
  virtual bool is_sum() const { return false; }
  // What is left of a norm in inference: a scale and a shift of each channel, which follow from its
  // parameters "weight" and "bias" and its "running_mean" and "running_var", then an activation.
  struct ChannelScale {
    float epsilon = 0;  // added to the variance
    ops::Activation activation = ops::Activation::kNone;
  };
  virtual std::optional<ChannelScale> as_channel_scale() const { return std::nullopt; }
  // For inference: does the activation of such a layer, whose scale and shift go into this one's
  // weights and its bias, which it has from then on. False: it cannot.
  virtual bool fold(const ChannelScale& /*next*/) { return false; }
  // Whether training it uses statistics over the rank's share of the batch, so that results depend
  // on the number of ranks.
  virtual bool uses_rank_statistics() const { return false; }
  // Whether it only hands its input on, in training and inference alike, and can be left out.
  virtual bool is_identity() const { return false; }
};

std::unique_ptr<Layer> make_layer(const LayerConfig& config);

}  // namespace trireme::model
