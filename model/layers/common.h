// What several layers share: arity and shape checks, windows, initialisers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"
#include "model/layer.h"
#include "model/model.pb.h"

namespace trireme {

// Throws Error unless there are so many inputs, or the first has that rank.
void require_inputs(std::span<const Shape> inputs, size_t count);
void require_rank(const Shape& shape, int rank, const char* meaning);

// One number or height and width; `fallback` when unset. Throws Error naming the field when there
// are more than two or one is below `lowest`.
std::array<int64_t, 2> height_width(const google::protobuf::RepeatedField<int64_t>& numbers,
                                    std::array<int64_t, 2> fallback, const char* field,
                                    int64_t lowest);

// `config` unset: what PyTorch does for dense and convolutional weights, uniform in
// +-1/sqrt(fan_in).
Initialiser initialiser(const InitialiserConfig& config, int64_t fan_in, int64_t fan_out);

// Activation's part of a backward pass: dy before the activation that was fused into the layer.
ValueId through_activation(Emitter& emit, Activation activation, ValueId output, ValueId dy);

}  // namespace trireme
