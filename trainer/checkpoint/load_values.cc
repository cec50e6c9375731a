#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "core/error.h"
#include "model/graph.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

// Sizes a buffer for the largest tensor, so that tensors pass through one by one.
std::vector<float> staging(const model::Parameters& parameters) {
  int64_t largest = 0;
  for (const model::Parameter& parameter : parameters.all) {
    largest = std::max(largest, parameter.spec.shape.elements());
  }
  for (const model::RunningValue& value : parameters.running) {
    largest = std::max(largest, value.spec.shape.elements());
  }
  return std::vector<float>(static_cast<size_t>(largest));
}

std::span<float> front(std::vector<float>& buffer, const Shape& shape) {
  return std::span(buffer).first(static_cast<size_t>(shape.elements()));
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

void load_model(const FoundCheckpoint& checkpoint, const TrainedArrays& arrays) {
  fitting(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kModelFile);
    std::vector<float> buffer = staging(arrays.parameters);
    for (const model::Parameter& parameter : arrays.parameters.all) {
      reader.read(parameter.name, parameter.spec.shape, front(buffer, parameter.spec.shape));
      model::from_canonical(parameter, arrays.backend, buffer.data(), arrays.values);
    }
    for (const model::RunningValue& value : arrays.parameters.running) {
      reader.read(value.name, value.spec.shape, front(buffer, value.spec.shape));
      model::from_canonical(value, arrays.backend, buffer.data(), arrays.running);
    }
    const size_t wanted = arrays.parameters.all.size() + arrays.parameters.running.size();
    require_no_more(reader, checkpoint, wanted);
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

void load_optimizer(const FoundCheckpoint& checkpoint, const TrainedArrays& arrays) {
  fitting(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kOptimizerFile);
    if (reader.names().empty()) return;
    std::vector<float> buffer = staging(arrays.parameters);
    for (const auto& array : arrays.optimizer) {
      for (const model::Parameter& parameter : arrays.parameters.all) {
        if (parameter.frozen) continue;
        reader.read(array.name + "." + parameter.name, parameter.spec.shape,
                    front(buffer, parameter.spec.shape));
        model::from_canonical(parameter, arrays.backend, buffer.data(), array.values);
      }
    }
  });
}

}  // namespace trireme::train
