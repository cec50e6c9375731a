// Functions shared by layers: checks of inputs, windows, initializers, fused activations.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"
#include "model/layer.h"
#include "model/model.pb.h"

namespace trireme::model {

// Throws Error unless there are `count` inputs.
void require_inputs(std::span<const Shape> inputs, size_t count);
// Throws Error unless the shape has `rank` dimensions. `meaning` describes them: "[C, H, W]".
void require_rank(const Shape& shape, int rank, const char* meaning);

// Throws Error unless the shape is [F], or [T, F] for a sequence.
void require_features(const Shape& shape);

// Returns height and width, given as one or two numbers, or `fallback` if unset. Throws an Error
// that names the field if there are more than two, or one is below `lowest` or above 2^30.
std::array<int64_t, 2> height_width(const google::protobuf::RepeatedField<int64_t>& numbers,
                                    std::array<int64_t, 2> fallback, const char* field,
                                    int64_t lowest);

// Returns the configured initializer. If `config` is unset, returns PyTorch's default for dense and
// convolutional weights, uniform in +-1/sqrt(fan_in).
Initializer initializer(const InitializerConfig& config, int64_t fan_in, int64_t fan_out);

// Declares the weight and bias of a dense or convolutional layer. `Config` is its message, with the
// fields `bias`, `weight_init` and `bias_init`.
template <class Config>
void declare_weights(Signature& signature, const Config& config, const Shape& weight,
                     int64_t fan_in, int64_t fan_out) {
  signature.parameters.push_back({.name = "weight",
                                  .shape = weight,
                                  .init = initializer(config.weight_init(), fan_in, fan_out)});
  if (!config.bias()) return;
  signature.parameters.push_back({.name = "bias",
                                  .shape = {weight[0]},
                                  .init = initializer(config.bias_init(), fan_in, fan_out),
                                  .decays = false});
}

// Declare the parameters of a norm. They are few, so they are read in full precision.
void declare_scale(Signature& signature, const Shape& shape, const Initializer& scale);
void declare_scale_and_shift(Signature& signature, const Shape& shape, const Initializer& scale);

// Sets `own` to the activation `next` and returns true, if `own` is none and the derivative of the
// activation can be computed from its output alone. Otherwise returns false.
bool fuse_activation(ops::Activation& own, const Layer& next);

// Returns the gradient with respect to the input of the fused activation, given the gradient `dy`
// of its output.
ValueId backward_through_activation(Emitter& emit, ops::Activation activation, ValueId output,
                                    ValueId dy);

}  // namespace trireme::model
