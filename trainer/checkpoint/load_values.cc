#include <fmt/format.h>

#include <span>
#include <vector>

#include "core/error.h"
#include "model/graph.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

// Reads the tensors of the arrays, one by one; returns their number.
size_t read_tensors(const SafetensorsReader& reader, const StateArrays& state,
                    std::span<const StateArrays::Array> arrays) {
  std::vector<float> values;
  size_t count = 0;
  for (const auto& array : arrays) {
    for (const auto& tensor : array.tensors) {
      values.resize(static_cast<size_t>(tensor.spec.shape.elements()));
      reader.read(tensor.name, tensor.spec.shape, values);
      state.put(tensor, values);
      ++count;
    }
  }
  return count;
}

void require_no_more(const SafetensorsReader& reader, const FoundCheckpoint& checkpoint,
                     size_t wanted) {
  if (reader.names().size() == wanted) return;
  throw DataError((checkpoint.path / kModelFile).string(),
                  fmt::format("holds {} tensors, wanted {}", reader.names().size(), wanted));
}

// Why the tensor names or shapes do not fit, as a matter of configuration rather than damage.
template <class F>
void fitting(const FoundCheckpoint& checkpoint, F&& load) {
  try {
    load();
  } catch (const DataError& error) {
    throw ConfigError(
        checkpoint.path.string(),
        fmt::format("is of another model or optimizer than configured ({})", error.what()));
  }
}

}  // namespace

void load_model(const FoundCheckpoint& checkpoint, const StateArrays& state) {
  fitting(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kModelFile);
    require_no_more(reader, checkpoint, read_tensors(reader, state, state.model()));
  });
}

model::Weights read_model(const FoundCheckpoint& checkpoint, const model::Graph& graph) {
  model::Weights weights;
  fitting(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kModelFile);
    const auto read = [&](const std::string& name, const Shape& shape) {
      model::Weight& weight = weights[name];
      weight.shape = shape;
      weight.values.resize(static_cast<size_t>(shape.elements()));
      reader.read(name, shape, weight.values);
    };
    for (const model::Node& node : graph.nodes) {
      for (const auto& declared : node.signature.parameters) {
        read(node.name + "." + declared.name, declared.shape);
      }
      for (const auto& declared : node.signature.running) {
        read(node.name + "." + declared.name, declared.shape);
      }
    }
    require_no_more(reader, checkpoint, weights.size());
  });
  return weights;
}

void load_optimizer(const FoundCheckpoint& checkpoint, const StateArrays& state) {
  fitting(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kOptimizerFile);
    if (!reader.names().empty()) read_tensors(reader, state, state.optimizer());
  });
}

}  // namespace trireme::train
