// Adds the layers of sequences that have been recognized.
#include <algorithm>

#include "model/onnx/importer.h"
#include "model/onnx/recurrent.h"

namespace trireme::model::onnx {

void Importer::add_sequence_layer(const NodeView& node, const SequenceLayer& found) {
  const int input = layer_of(node, found.input);
  const auto weight = found.parameters.find("weight");
  const int layer = add_layer(node, found.config, {input},
                              weight == found.parameters.end() ? "" : weight->second);
  if (found.config.has_lstm() || found.config.has_gru()) {
    add_recurrent_weights(node, layer, found);
  } else if (found.config.has_class_token()) {
    add_class_token(node, layer, found);
  } else {
    for (const auto& [name, tensor] : found.parameters) {
      add_parameter(node, layer, name, tensor, Shape(extents(node, tensor)));
    }
  }
  if (found.config.has_embedding()) {
    imported_.vocab_size = found.config.embedding().vocab_size();
  }
  set_output(node, LayerValue{layer});
}

// A constant has both directions of a layer; that of the biases has those of the input and those of
// the state for each direction.
void Importer::add_recurrent_weights(const NodeView& node, int layer, const SequenceLayer& found) {
  const bool lstm = found.config.has_lstm();
  const RecurrentConfig& config = lstm ? found.config.lstm() : found.config.gru();
  const size_t directions = config.bidirectional() ? 2 : 1;
  const int64_t rows = (lstm ? 4 : 3) * config.hidden();
  const auto add = [&](const std::string& name, size_t direction, std::span<const float> values) {
    const std::string full = name + (direction == 0 ? "" : "_reverse");
    const int64_t columns = static_cast<int64_t>(values.size()) / rows;
    const bool bias = name.starts_with("bias");
    add_weight(layer, full.c_str(), bias ? Shape{rows} : Shape{rows, columns},
               from_onnx_gates(lstm, values));
  };
  for (const auto& [name, tensor] : found.parameters) {
    own(node, layer, name, tensor);
    const std::vector<float> all = floats(node, tensor);
    const bool bias = name.starts_with("bias");
    const size_t parts = directions * (bias ? 2 : 1), size = all.size() / parts;
    const std::string number = name.substr(name.rfind('_'));
    for (size_t part = 0; part < parts; ++part) {
      const std::span<const float> values = std::span(all).subspan(part * size, size);
      if (bias) {
        add((part % 2 == 0 ? "bias_ih" : "bias_hh") + number, part / 2, values);
      } else {
        add(name, part, values);
      }
    }
  }
}

// The sum of the class token and its position becomes the token.
void Importer::add_class_token(const NodeView& node, int layer, const SequenceLayer& found) {
  const std::string& tensor = found.parameters.begin()->second;
  own(node, layer, found.parameters.begin()->first, tensor);
  const Shape shape(extents(node, tensor));
  std::vector<float> positions = floats(node, tensor);
  const auto end_of_token = positions.begin() + shape[1];
  add_weight(layer, "token", {shape[1]}, {positions.begin(), end_of_token});
  std::fill(positions.begin(), end_of_token, 0.0F);
  add_weight(layer, "position", shape, std::move(positions));
}

}  // namespace trireme::model::onnx
