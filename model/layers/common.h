// What several layers share: arity and shape checks, windows, initializers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"
#include "model/layer.h"
#include "model/model.pb.h"

namespace trireme::model {

// Throws Error unless there are so many inputs, or the first has that rank.
void require_inputs(std::span<const Shape> inputs, size_t count);
void require_rank(const Shape& shape, int rank, const char* meaning);

// One number or height and width; `fallback` when unset. Throws Error naming the field when there
// are more than two or one is below `lowest` or absurdly large.
std::array<int64_t, 2> height_width(const google::protobuf::RepeatedField<int64_t>& numbers,
                                    std::array<int64_t, 2> fallback, const char* field,
                                    int64_t lowest);

// `config` unset: what PyTorch does for dense and convolutional weights, uniform in
// +-1/sqrt(fan_in).
Initializer initializer(const InitializerConfig& config, int64_t fan_in, int64_t fan_out);

// The parameters of a layer that multiplies, whose message has `bias` and the initializers.
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

// The parameters of a norm, which are few and read in full precision.
void declare_scale_and_shift(Signature& signature, const Shape& shape, const Initializer& scale);

// Takes over the activation that follows, if it can be applied in the same pass and undone from the
// output alone, and there is none yet.
bool absorb_activation(ops::Activation& own, const Layer& next);

// Activation's part of a backward pass: dy before the activation that was fused into the layer.
ValueId through_activation(Emitter& emit, ops::Activation activation, ValueId output, ValueId dy);

}  // namespace trireme::model
