#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "model/graph.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

// Reads the tensors of the arrays, or checks them if they are distributed. Returns their number.
size_t read_tensors(const SafetensorsReader& reader, const StateArrays& state,
                    std::span<const StateArrays::Array> arrays) {
  std::vector<float> values;
  size_t count = 0;
  for (const auto& array : arrays) {
    for (const auto& tensor : array.tensors) {
      ++count;
      if (array.is_distributed()) {
        reader.require(tensor.name, tensor.spec.shape);
        continue;
      }
      values.resize(static_cast<size_t>(tensor.spec.shape.elements()));
      reader.read(tensor.name, tensor.spec.shape, values);
      state.put(tensor, values);
    }
  }
  return count;
}

// Throws DataError if the file has other tensors, too.
void check_tensor_count(const SafetensorsReader& reader, const FoundCheckpoint& checkpoint,
                        size_t wanted) {
  if (reader.names().size() == wanted) return;
  throw DataError((checkpoint.path / kModelFile).string(),
                  fmt::format("has {} tensors instead of {}", reader.names().size(), wanted));
}

bool has_prefix(const std::string& name, const char* prefix) {
  return name.starts_with(prefix + std::string("."));
}
bool is_average(const std::string& name) { return has_prefix(name, kAveragePrefix); }

// Returns whether the array is to be loaded from the checkpoint: averages and carried states if the
// file has them, other arrays if the file has any other state. Carried states are needed only
// within an epoch.
bool is_loaded(const FoundCheckpoint& checkpoint, const SafetensorsReader& reader,
               const StateArrays::Array& array) {
  if (array.tensors.empty()) return false;
  const auto kind = [](const std::string& name) {
    return std::pair(is_average(name), has_prefix(name, kCarriedPrefix));
  };
  const auto wanted = kind(array.tensors.front().name);
  if (wanted.second && checkpoint.state.position == 0) return false;
  return std::ranges::any_of(reader.names(),
                             [&](const std::string& name) { return kind(name) == wanted; });
}

// Calls `load` and turns a DataError, about names or shapes of tensors, into a ConfigError: the
// file is intact but does not match the configuration.
template <class F>
void with_config_errors(const FoundCheckpoint& checkpoint, F&& load) {
  try {
    load();
  } catch (const DataError& error) {
    throw ConfigError(
        checkpoint.path.string(),
        fmt::format("was written with another model or optimizer than configured ({})",
                    error.what()));
  }
}

}  // namespace

void load_model(const FoundCheckpoint& checkpoint, const StateArrays& state) {
  with_config_errors(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kModelFile);
    check_tensor_count(reader, checkpoint, read_tensors(reader, state, state.model()));
  });
}

model::Weights read_model(const FoundCheckpoint& checkpoint, const model::Graph& graph) {
  model::Weights weights;
  with_config_errors(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kModelFile);
    const auto read = [&](const std::string& name, const Shape& shape) {
      model::Weight& weight = weights[name];
      weight.shape = shape;
      weight.values.resize(static_cast<size_t>(shape.elements()));
      reader.read(name, shape, weight.values);
    };
    for (const model::Node& node : graph.nodes) {
      for (const auto& declared : node.signature.parameters) {
        read(model::parameter_name(node, declared), declared.shape);
      }
      for (const auto& declared : node.signature.running_stats) {
        read(node.name + "." + declared.name, declared.shape);
      }
    }
    check_tensor_count(reader, checkpoint, weights.size());
    use_averages(checkpoint, weights);
  });
  return weights;
}

void use_averages(const FoundCheckpoint& checkpoint, model::Weights& weights) {
  const SafetensorsReader reader(checkpoint.path / kOptimizerFile);
  for (const std::string& name : reader.names()) {
    if (!is_average(name)) continue;
    const auto weight = weights.find(name.substr(name.find('.') + 1));
    if (weight == weights.end()) {
      throw DataError((checkpoint.path / kOptimizerFile).string(),
                      fmt::format("has '{}', but {} has no such parameter", name, kModelFile));
    }
    reader.read(name, weight->second.shape, weight->second.values);
  }
}

void load_optimizer(const FoundCheckpoint& checkpoint, const StateArrays& state) {
  with_config_errors(checkpoint, [&] {
    const SafetensorsReader reader(checkpoint.path / kOptimizerFile);
    for (const StateArrays::Array& array : state.optimizer()) {
      if (is_loaded(checkpoint, reader, array)) read_tensors(reader, state, {&array, 1});
    }
  });
}

std::vector<std::string> distributed_tensors(const FoundCheckpoint& checkpoint,
                                             const StateArrays& state) {
  std::vector<std::string> names = StateArrays::distributed_names(state.model());
  const SafetensorsReader reader(checkpoint.path / kOptimizerFile);
  for (const StateArrays::Array& array : state.optimizer()) {
    if (is_loaded(checkpoint, reader, array))
      std::ranges::move(StateArrays::distributed_names({&array, 1}), std::back_inserter(names));
  }
  return names;
}

StateArrays::Read reader_of(const FoundCheckpoint& checkpoint, const StateArrays& state) {
  struct Files {
    Files(const std::filesystem::path& folder, const std::vector<std::string>& names)
        : model(folder / kModelFile),
          optimizer(folder / kOptimizerFile),
          in_model(names.begin(), names.end()) {}
    SafetensorsReader model, optimizer;
    std::set<std::string> in_model;
  };
  const auto files =
      std::make_shared<const Files>(checkpoint.path, StateArrays::distributed_names(state.model()));
  return [files](const StateArrays::Tensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.spec.shape.elements()));
    const bool model = files->in_model.contains(tensor.name);
    (model ? files->model : files->optimizer).read(tensor.name, tensor.spec.shape, values);
    return values;
  };
}

}  // namespace trireme::train
