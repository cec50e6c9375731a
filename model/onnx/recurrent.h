// The order of gates in the weights of recurrent layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::model::onnx {

// Convert rows of weights or biases [G * H, C] between the order of gates of PyTorch (LSTM: i, f,
// g, o; GRU: r, z, n) and that of ONNX (LSTM: i, o, f, c; GRU: z, r, h).
std::vector<float> to_onnx_gates(bool lstm, std::span<const float> rows);
std::vector<float> from_onnx_gates(bool lstm, std::span<const float> rows);

}  // namespace trireme::model::onnx
