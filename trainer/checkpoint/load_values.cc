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
#include "trainer/config/config.h"
#include "trainer/optimizer/optimizer.h"

namespace trireme::train {
namespace {

// Throws DataError unless the file has the tensors of the array, in their shapes.
void require_tensors(const SafetensorsReader& reader, const StateArrays::Array& array) {
  for (const auto& tensor : array.tensors) reader.require(tensor.name, tensor.spec.shape);
}

// Reads the tensors of the arrays, except distributed ones.
void read_tensors(const SafetensorsReader& reader, const StateArrays& state,
                  std::span<const StateArrays::Array> arrays) {
  std::vector<float> values;
  for (const auto& array : arrays) {
    if (array.is_distributed()) continue;
    for (const auto& tensor : array.tensors) {
      values.resize(static_cast<size_t>(tensor.spec.shape.elements()));
      reader.read(tensor.name, tensor.spec.shape, values);
      state.put(tensor, values);
    }
  }
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

// The kinds of optimizer state: a checkpoint has all arrays of a kind or none.
enum class StateKind { kRule, kAverage, kCarried };

StateKind kind_of(const std::string& name) {
  if (is_average(name)) return StateKind::kAverage;
  return has_prefix(name, kCarriedPrefix) ? StateKind::kCarried : StateKind::kRule;
}

// Returns whether the run that wrote the checkpoint had such state, according to its configuration;
// false if that is unknown.
bool had_state(const CheckpointState& state, StateKind kind) try {
  if (state.config.empty()) return false;
  const RunConfig saved = parse_config(state.config, kModelFile, {}).run;
  switch (kind) {
    case StateKind::kRule:
      return !optimizer_state_names(saved.optimizer()).empty();
    case StateKind::kAverage:
      return uses_ema(saved.optimizer());
    case StateKind::kCarried:
      return model::is_stateful(saved.model());
  }
  return false;
} catch (const ConfigError&) {  // written by a version with other fields
  return false;
}

// Returns whether the array is to be loaded from the checkpoint: averages and carried states if the
// file has them, other arrays if the file has any other state. Carried states are needed only
// within an epoch. Throws DataError if the file lacks state that the run had.
bool is_loaded(const FoundCheckpoint& checkpoint, const SafetensorsReader& reader,
               const StateArrays::Array& array) {
  if (array.tensors.empty()) return false;
  const StateKind wanted = kind_of(array.tensors.front().name);
  if (wanted == StateKind::kCarried && checkpoint.state.position == 0) return false;
  if (std::ranges::any_of(reader.names(),
                          [&](const std::string& name) { return kind_of(name) == wanted; })) {
    return true;
  }
  if (!had_state(checkpoint.state, wanted)) return false;
  throw DataError((checkpoint.path / kOptimizerFile).string(),
                  fmt::format("is damaged: it has no tensor '{}', though the run that wrote it, "
                              "whose configuration is in the checkpoint, had such state",
                              array.tensors.front().name));
}

// Calls `compare` and turns a DataError, about names or shapes of tensors, into a ConfigError: the
// file is intact but does not match the configuration.
template <class F>
void with_config_errors(const FoundCheckpoint& checkpoint, F&& compare) {
  try {
    compare();
  } catch (const DataError& error) {
    throw ConfigError(
        checkpoint.path.string(),
        fmt::format("was written with another model or optimizer than configured ({})",
                    error.what()));
  }
}

}  // namespace

void load_model(const FoundCheckpoint& checkpoint, const StateArrays& state) {
  const SafetensorsReader reader = checkpoint.model();
  with_config_errors(checkpoint, [&] {
    size_t count = 0;
    for (const auto& array : state.model()) {
      require_tensors(reader, array);
      count += array.tensors.size();
    }
    check_tensor_count(reader, checkpoint, count);
  });
  read_tensors(reader, state, state.model());
}

model::Weights read_model(const FoundCheckpoint& checkpoint, const model::Graph& graph) {
  const SafetensorsReader reader = checkpoint.model();
  model::Weights weights;
  with_config_errors(checkpoint, [&] {
    const auto require = [&](const std::string& name, const Shape& shape) {
      reader.require(name, shape);
      weights[name].shape = shape;
    };
    for (const model::Node& node : graph.nodes) {
      for (const auto& declared : node.signature.parameters) {
        require(model::parameter_name(node, declared), declared.shape);
      }
      for (const auto& declared : node.signature.running_stats) {
        require(node.name + "." + declared.name, declared.shape);
      }
    }
    check_tensor_count(reader, checkpoint, weights.size());
  });
  for (auto& [name, weight] : weights) weight.values = reader.read(name);
  use_averages(checkpoint, weights);
  return weights;
}

void use_averages(const FoundCheckpoint& checkpoint, model::Weights& weights) {
  const SafetensorsReader reader = checkpoint.optimizer();
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
  const SafetensorsReader reader = checkpoint.optimizer();
  for (const StateArrays::Array& array : state.optimizer()) {
    if (!is_loaded(checkpoint, reader, array)) continue;
    with_config_errors(checkpoint, [&] { require_tensors(reader, array); });
    read_tensors(reader, state, {&array, 1});
  }
}

std::vector<std::string> distributed_tensors(const FoundCheckpoint& checkpoint,
                                             const StateArrays& state) {
  std::vector<std::string> names = StateArrays::distributed_names(state.model());
  const SafetensorsReader reader = checkpoint.optimizer();
  for (const StateArrays::Array& array : state.optimizer()) {
    if (is_loaded(checkpoint, reader, array))
      std::ranges::move(StateArrays::distributed_names({&array, 1}), std::back_inserter(names));
  }
  return names;
}

StateArrays::Read reader_of(const FoundCheckpoint& checkpoint, const StateArrays& state) {
  struct Files {
    Files(const FoundCheckpoint& checkpoint, const std::vector<std::string>& names)
        : model(checkpoint.model()),
          optimizer(checkpoint.optimizer()),
          in_model(names.begin(), names.end()) {}
    SafetensorsReader model, optimizer;
    std::set<std::string> in_model;
  };
  const auto files =
      std::make_shared<const Files>(checkpoint, StateArrays::distributed_names(state.model()));
  return [files](const StateArrays::Tensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.spec.shape.elements()));
    const bool model = files->in_model.contains(tensor.name);
    (model ? files->model : files->optimizer).read(tensor.name, tensor.spec.shape, values);
    return values;
  };
}

}  // namespace trireme::train
