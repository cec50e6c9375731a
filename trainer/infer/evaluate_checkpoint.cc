#include "trainer/infer/evaluate_checkpoint.h"

#include <fmt/format.h>

#include "comm/control.h"
#include "data/external_data.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"
#include "trainer/config/monitor.h"
#include "trainer/infer/trained_model.h"
#include "trainer/step/batch_plan.h"
#include "trainer/step/rank_consistency.h"

namespace trireme::train {

CheckpointEvaluation evaluate_checkpoint(const Config& trained_with,
                                         comm::Communicator& communicator,
                                         const FoundCheckpoint& checkpoint,
                                         const std::optional<SampleInfo>& trained_on,
                                         bool with_details, const data::TableColumns& columns) {
  Config config = trained_with;
  config.run.mutable_parallel()->set_stages(1);  // each rank computes all of the network
  config.run.mutable_parallel()->clear_cut_after();
  const auto device = create_device(config, communicator);
  const auto backend = create_backend(config, *device);
  const int spare = spare_cores(config, communicator, *device);
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<TrainedModel> model;
  std::unique_ptr<Evaluator> evaluator;
  comm::together(communicator, [&] {
    const BatchPlan plan = plan_batch(config, communicator.size());
    dataset = open_data(config, data::Part::kEvaluation, opening_progress(communicator), columns);
    if (trained_on) {
      dataset = data::with_training_classes(std::move(dataset), trained_on->spec,
                                            trained_on->class_names);
    }
    data::LoaderOptions loading = loader_options(config, communicator, *dataset, spare);
    loading.order.shuffle = false;
    model = std::make_unique<TrainedModel>(config, *backend, dataset->spec(), checkpoint,
                                           plan.micro, BatchNormMode::kUnfolded);
    evaluator = std::make_unique<Evaluator>(
        model->graph(), *backend, communicator, *dataset, predictions_of(config.run, *dataset),
        model->parameters(), model->arrays(), std::span<std::byte>(), plan, loading);
  });
  const std::string problem = padding_problem(config, model->graph(), *dataset);
  if (communicator.rank() == 0 && !problem.empty()) warn_on_stderr(problem);
  const auto fingerprints =
      require_same_data(communicator, config.run.data(), {{"evaluation", dataset.get()}});
  require_same_properties(communicator, {{"checksum of " + checkpoint.path.string(),
                                          fmt::format("{:016x}", checkpoint.files->checksum)}});
  Evaluation result = evaluator->run([] { return false; }, with_details);
  const data::BadRecords opened = dataset->bad_records();
  result.bad.count += opened.count;
  result.bad.first.insert(result.bad.first.begin(), opened.first.begin(), opened.first.end());
  CheckpointEvaluation evaluation{std::move(result), checkpoint.state,
                                  data::output_names(*dataset)};
  const std::optional<RunData>& saved = evaluation.state.data;
  if (communicator.rank() == 0 && saved && !trained_on) {
    evaluation.data_changes = changes(*saved, {saved->training, fingerprints[0]});
  }
  return evaluation;
}

}  // namespace trireme::train
