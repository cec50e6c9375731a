// The interface of a layer: its shapes, its parameters, its forward and backward operations. It is
// independent of the device. Each kind of layer has a file in layers/ and a message in model.proto.
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

// The output shape and the state of a layer, as inferred from the shapes of its inputs (without the
// batch).
struct Signature {
  struct Parameter {
    std::string name;  // "weight"
    Shape shape;
    Initializer init;
    bool decays = true;           // whether weight decay applies
    bool full_precision = false;  // read in f32 even if the network computes in BF16 or FP16
    bool frozen = false;          // not trained, see ModelConfig::freeze
    // Whether row t is for position t of a sample. Programs for shorter samples read the first
    // rows.
    bool by_position = false;
    // If set, the parameter is the one of this name of this layer: they share values and gradient.
    std::string tied_to = {};
  };
  struct RunningStat {
    std::string name;  // "running_mean"
    Shape shape;
    float initial = 0;
  };
  Shape output;
  std::vector<Parameter> parameters;
  std::vector<RunningStat> running_stats;
  // Returns whether any of the parameters is trained.
  bool trained() const {
    return std::ranges::any_of(parameters, [](const Parameter& p) { return !p.frozen; });
  }
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string_view kind() const = 0;  // the name of its field in LayerConfig

  // Returns the layer's signature. Throws an Error that states the actual and the required shape;
  // the caller adds the layer's name.
  virtual Signature infer(std::span<const Shape> inputs) const = 0;

  // Returns whether row t of the output, [T, F], depends only on the rows up to t of the inputs.
  virtual bool is_causal() const { return false; }

  // Returns whether the rows of a sample's tokens, or the vector computed from them, do not depend
  // on the padding that follows these tokens.
  virtual bool skips_padding() const { return is_causal(); }

  // Returns whether the layer reads tokens, i32 [T], the input of networks for text.
  virtual bool reads_tokens() const { return false; }
  // A field of the layer that names a token. Row t of the layer's input belongs to token t of the
  // network's input.
  struct TokenField {
    std::string_view name;  // e.g. "attention.padding_token"
    std::optional<int32_t> token;
  };
  virtual std::vector<TokenField> token_fields() const { return {}; }

  // Emits the operations that compute the output, and returns it.
  virtual ValueId forward(Emitter& emit) const = 0;
  // Emits the operations that compute the gradients of parameters and inputs from that of the
  // output, `dy`.
  virtual void backward(Emitter& emit, ValueId dy) const = 0;

  // Fuses `next`, the only layer that reads this one, into this layer if a single operation can do
  // the work of both. Other inputs of `next` then become inputs of this layer, after its own.
  // Returns whether it did so.
  virtual bool fuse(const Layer& /*next*/) { return false; }
  // Describe a layer that can be fused into another one: as an activation, or as a sum of two
  // inputs.
  virtual ops::Activation as_activation() const { return ops::Activation::kNone; }
  virtual bool is_sum() const { return false; }
  // A norm in inference: a scale and a shift of each channel, computed from its parameters "weight"
  // and "bias" and its statistics "running_mean" and "running_var", followed by an activation.
  struct ChannelScale {
    float epsilon = 0;  // added to the variance
    ops::Activation activation = ops::Activation::kNone;
  };
  // Returns the ChannelScale that this layer is in inference, or nullopt if it is not one.
  virtual std::optional<ChannelScale> as_channel_scale() const { return std::nullopt; }
  // Used for inference. Prepares this layer for having `next`'s scale and shift folded into its
  // weights and bias: adds a bias if it has none, and takes over `next`'s activation. Returns
  // false, without changes, if that is not possible.
  virtual bool fold(const ChannelScale& /*next*/) { return false; }
  // Describe a loss that can be computed from some rows of its input at a time, and the layer whose
  // output it reads: the loss, and whether emit_with_loss() is supported.
  virtual std::optional<ops::SoftmaxCrossEntropy> as_cross_entropy(const Emitter& /*emit*/) const {
    return std::nullopt;
  }
  virtual bool is_linear() const { return false; }
  // Emits an operation that computes this layer, the loss of its output and, in training, the
  // gradients of parameters and inputs, in place of forward() and backward().
  virtual void emit_with_loss(Emitter& /*emit*/, const ops::SoftmaxCrossEntropy& /*loss*/) const {}
  // The samples over which the layer computes statistics in training, a mean for each channel:
  // those of a micro-batch on this rank or on all ranks.
  enum class Statistics { kNone, kOfRank, kOfAllRanks };
  virtual Statistics statistics() const { return Statistics::kNone; }
  // Returns whether the output is the input, in training and in inference.
  virtual bool is_identity() const { return false; }
};

// Throws Error if the message has no kind or an invalid field; the caller adds the layer's name.
std::unique_ptr<Layer> make_layer(const LayerConfig& config);

}  // namespace trireme::model
