#include "model/onnx/recurrent.h"

#include <fmt/format.h>

#include "core/error.h"
#include "model/onnx/sequences.h"

namespace trireme::model::onnx {
namespace {

// By gate of the result: the gate of `rows`.
std::vector<float> gates_in_order(std::span<const float> rows, std::span<const size_t> order) {
  const size_t size = rows.size() / order.size();
  std::vector<float> sorted;
  sorted.reserve(rows.size());
  for (const size_t gate : order) {
    const std::span<const float> from = rows.subspan(gate * size, size);
    sorted.insert(sorted.end(), from.begin(), from.end());
  }
  return sorted;
}

constexpr size_t kLstmToOnnx[] = {0, 3, 1, 2}, kLstmFromOnnx[] = {0, 2, 3, 1};
constexpr size_t kGruSwapped[] = {1, 0, 2};

}  // namespace

std::vector<float> to_onnx_gates(bool lstm, std::span<const float> rows) {
  return lstm ? gates_in_order(rows, kLstmToOnnx) : gates_in_order(rows, kGruSwapped);
}

std::vector<float> from_onnx_gates(bool lstm, std::span<const float> rows) {
  return lstm ? gates_in_order(rows, kLstmFromOnnx) : gates_in_order(rows, kGruSwapped);
}

// Returns the constant of both directions of a layer, in which the values of parameters `names` of
// a direction follow each other. Without weights, returns its name only.
std::string SequenceWriter::gates(const Node& node, bool lstm, const RecurrentConfig& config,
                                  const std::string& name, std::vector<std::string> names) {
  const std::string constant = node.name + "." + name;
  if (weights_.empty()) return constant;
  const int64_t directions = config.bidirectional() ? 2 : 1;
  std::vector<float> values;
  Shape shape;
  for (int64_t direction = 0; direction < directions; ++direction) {
    for (const std::string& one : names) {
      const std::string full = one + (direction == 0 ? "" : "_reverse");
      const Weight& weight = weight_of(node, full.c_str());
      const std::vector<float> sorted = to_onnx_gates(lstm, weight.values);
      values.insert(values.end(), sorted.begin(), sorted.end());
      shape = weight.shape;
    }
  }
  const int64_t rows = static_cast<int64_t>(names.size()) * shape[0];
  return out_.floats(
      constant, shape.rank() == 2 ? Shape{directions, rows, shape[1]} : Shape{directions, rows},
      values);
}

// Sequences are [T, N, F] between the layers.
std::string SequenceWriter::recurrent(const RecurrentConfig& config, bool lstm, const Node& node,
                                      const std::string& x) {
  if (config.has_document_end()) {
    throw ConfigError("model", fmt::format("layer '{}': document_end cannot be exported to ONNX, "
                                           "whose LSTM and GRU read a sample as one document",
                                           node.name));
  }
  const int64_t directions = config.bidirectional() ? 2 : 1;
  std::string rows = transpose(node.name + "/steps", x, {1, 0, 2});
  for (int64_t layer = 0; layer < config.layers(); ++layer) {
    const auto constant = [&](const char* name, const std::vector<std::string>& names) {
      return gates(node, lstm, config, fmt::format("{}_l{}", name, layer), names);
    };
    const auto of_layer = [&](const char* name) { return fmt::format("{}_l{}", name, layer); };
    const std::string name = fmt::format("{}/{}", node.name, layer);
    NodeProto& cell = out_.add(lstm ? "LSTM" : "GRU", name,
                               {rows, constant("weight_ih", {of_layer("weight_ih")}),
                                constant("weight_hh", {of_layer("weight_hh")}),
                                constant("bias", {of_layer("bias_ih"), of_layer("bias_hh")})});
    set_attribute(cell, "hidden_size", config.hidden());
    if (config.bidirectional()) set_attribute(cell, "direction", std::string("bidirectional"));
    if (!lstm) set_attribute(cell, "linear_before_reset", int64_t{1});
    const std::string joined = transpose(name + "/directions", cell.output(0), {0, 2, 1, 3});
    rows = reshape(name + "/rows", joined, {0, 0, directions * config.hidden()});
  }
  return transpose(node.name, rows, {1, 0, 2});
}

}  // namespace trireme::model::onnx
