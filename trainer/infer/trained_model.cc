#include "trainer/infer/trained_model.h"

#include "model/passes/passes.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/optimizer/state_arrays.h"

namespace trireme::train {

TrainedModel::TrainedModel(const Config& config, ops::Backend& backend,
                           const data::SampleSpec& samples, const std::string& path, int64_t rows,
                           BatchNormMode norms, const Warn& warn)
    : graph_(build_network(config, samples)) {
  const FoundCheckpoint found = find_for_inference(path, warn);
  state_ = found.state;
  model::Weights weights = read_model(found, graph_);
  if (norms == BatchNormMode::kFolded) model::fold_batch_norms(graph_, weights);
  model::Program::compile(graph_, backend,
                          {.batch = rows, .training = false, .dtype = compute_dtype(config)},
                          parameters_);
  load_weights(weights, backend);
}

void TrainedModel::load_weights(const model::Weights& weights, ops::Backend& backend) {
  Device& device = backend.device();
  values_ = device.allocate(parameters_.array_bytes());
  running_ = device.allocate(parameters_.running_stat_bytes());
  low_precision_ = model::LowPrecisionCopy(parameters_, backend);
  arrays_.parameters = values_.data();
  arrays_.low_precision = low_precision_.data();
  arrays_.running_stats = running_.data();
  const StateArrays state(parameters_, backend, arrays_);
  for (const auto& array : state.model()) {
    for (const auto& tensor : array.tensors) state.put(tensor, weights.at(tensor.name).values);
  }
  const auto stream = device.create_stream(StreamKind::kCompute);
  low_precision_.refresh(values_.data(), *stream);
  stream->synchronize();
}

}  // namespace trireme::train
