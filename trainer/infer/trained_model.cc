#include "trainer/infer/trained_model.h"

#include "data/normalization.h"
#include "model/passes/passes.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/optimizer/state_arrays.h"

namespace trireme::train {

TrainedRun find_trained_run(const std::string& path, std::span<const std::string> assignments,
                            const Warn& warn) {
  TrainedRun run;
  run.folder = find_run(path);
  run.checkpoint = find_for_inference(path, warn);
  const std::string& saved = run.checkpoint.state.config;
  run.config = saved.empty()
                   ? load_config(run.folder.config().string(), assignments)
                   : parse_config(saved, run.checkpoint.path.string() + ": config", assignments);
  return run;
}

SampleInfo samples_of(const TrainedRun& run) {
  SampleInfo info = read_sample_info(run.folder.path, run.config);
  data::set_normalization(run.config.run.data(), info.spec);
  return info;
}

TrainedModel::TrainedModel(const Config& config, ops::Backend& backend,
                           const data::SampleSpec& samples, const FoundCheckpoint& checkpoint,
                           int64_t rows, BatchNormMode norms)
    : graph_(build_network(config, samples)), state_(checkpoint.state) {
  model::Weights weights = read_model(checkpoint, graph_);
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
