#include "trainer/run/run_setup.h"

#include <fmt/format.h>

#include <utility>

#include "comm/control.h"
#include "core/fault_point.h"
#include "core/file.h"
#include "data/classes.h"
#include "trainer/config/class_weights.h"
#include "trainer/config/device.h"
#include "trainer/config/grid.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"
#include "trainer/config/monitor.h"
#include "trainer/report/environment.h"
#include "trainer/report/sample_info.h"
#include "trainer/step/batch_statistics.h"
#include "trainer/step/memory_check.h"
#include "trainer/step/parallel_choice.h"
#include "trainer/step/rank_consistency.h"
#include "trainer/step/rank_memory.h"
#include "trainer/step/skipped_samples.h"
#include "trainer/step/training_program.h"

namespace trireme::train {

namespace fs = std::filesystem;

bool RunSetup::prepare() {
  return stage(&RunSetup::open_machine) && stage(&RunSetup::open_folder) &&
         stage(&RunSetup::compile) && stage(&RunSetup::create_loader) && stage(&RunSetup::resume) &&
         stage(&RunSetup::create_saver) && !stop_.agree();
}

bool RunSetup::stage(void (RunSetup::*work)()) {
  if (stop_.agree()) return false;
  (this->*work)();
  return true;
}

// Opens device and data. Writes nothing yet.
void RunSetup::open_machine() {
  comm::together(communicator_, [&] { plan_batch(config_, communicator_.size()); });
  parts_.device = create_device(config_, communicator_);
  parts_.backend = create_backend(config_, *parts_.device);
  comm::together(communicator_, [&] { open_inputs(); });
  keep_stored_positions();
  choose_parallel(config_, parts_.graph, *parts_.backend, communicator_);
  comm::together(communicator_, [&] {
    // If the size of micro-batches is to be chosen, it is checked when it is known.
    if (config_.run.batch().micro() != kLargestMicro) {
      check_statistics(plan_batch(config_, communicator_.size()));
    }
    require_min_memory();
    start_.fit_initial();
  });
  compare_samples();
  require_same_properties(communicator_, network_properties(*parts_.device, parts_.graph));
}

// Compares the samples of all ranks.
void RunSetup::compare_samples() {
  require_same_samples(communicator_, *parts_.training, *parts_.evaluation);
  const auto fingerprints = require_same_data(
      communicator_, config_.run.data(),
      {{"training", parts_.training.get()}, {"evaluation", parts_.evaluation.get()}});
  if (communicator_.rank() == 0) parts_.data = RunData{fingerprints[0], fingerprints[1]};
}

void RunSetup::open_inputs() {
  fault_point("open_data");
  const auto progress = opening_progress(communicator_);
  parts_.training = open_data(config_, data::Part::kTraining, progress);
  parts_.evaluation =
      open_data(config_, data::Part::kEvaluation, progress, parts_.training->columns());
  data::check_compatible(*parts_.training, *parts_.evaluation);
  parts_.predictions = predictions_of(config_.run, *parts_.evaluation);
  check_best_metric(config_, *parts_.evaluation);
  parts_.order = training_order(config_, *parts_.training);
  parts_.mix = make_mix(config_, parts_.training->spec());
  balance_class_weights(config_, *parts_.training);
  build_networks();
  if (options_.profile && !parts_.shorter.empty()) {
    throw ConfigError(
        config_.where("data.length_buckets"),
        "cannot be combined with --profile, which measures one program; remove it for "
        "the profile");
  }
}

void RunSetup::check_statistics(const BatchPlan& batch) const {
  require_statistics(config_, parts_.graph, batch, communicator_.size(), parts_.training->size());
}

void RunSetup::build_networks() {
  parts_.graph = build_network(config_, parts_.training->spec());
  parts_.shorter = build_shorter_networks(config_, parts_.graph, parts_.order, *parts_.training);
}

// Gives the network as many positions as the model has that it starts from.
void RunSetup::keep_stored_positions() {
  std::string rows;
  comm::together(communicator_, [&] {
    if (communicator_.rank() == 0) rows = std::to_string(start_.open_initial());
  });
  rows = broadcast(communicator_, rows, 0);
  comm::together(communicator_, [&] {
    if (keep_positions(config_, parts_.graph, std::stoll(rows))) build_networks();
  });
}

// Checks a lower bound of the memory before the run folder is created. Step checks the planned
// memory.
void RunSetup::require_min_memory() const {
  Device& device = *parts_.device;
  const int ranks = communicator_.size();
  const MemoryBudget budget =
      memory_budget_of(device, communicator_.placement().local_ranks, config_, parts_.graph);
  const size_t limit = memory_limit(config_, budget);
  const TrainingTarget target{.config = config_,
                              .graph = parts_.graph,
                              .backend = *parts_.backend,
                              .ranks = ranks,
                              .limit = limit,
                              .batches = steps_in_flight(device.kind()),
                              .rank = communicator_.rank(),
                              .cut_limit = limit};
  require_fits(target,
               min_memory(config_, parts_.graph, plan_batch(config_, ranks), device.kind(), ranks),
               budget);
}

void RunSetup::open_folder() {
  std::string path;
  comm::together(communicator_, [&] {
    if (communicator_.rank() == 0) path = choose_folder();
  });
  RunFolder& folder = parts_.folder;
  folder.path = broadcast(communicator_, path, 0);
  stop_.set_checkpoint_folder(folder.checkpoints());
  const WatchdogConfig& watch = config_.run.watchdog();
  communicator_.ledger().configure({.timeout = watch.timeout_seconds(),
                                    .first_timeout = watch.first_timeout_seconds(),
                                    .checkpoint = config_.run.checkpoint().timeout_seconds(),
                                    .straggler = watch.straggler_fraction(),
                                    .log = folder.log(communicator_.rank())});
  communicator_.ledger().set_roles(rank_roles(config_.run, communicator_.size()));
  require_newest_on_rank_0(communicator_, folder.checkpoints());
  parts_.reporter = std::make_unique<Reporter>(config_.run, communicator_, folder, options_.quiet);
  const RunLock* lock = parts_.lock.get();
  if (lock && !lock->problem().empty()) parts_.reporter->warn(lock->problem());
  for (const std::string& warning : config_.warnings) parts_.reporter->warn(warning);
}

// Creates and locks the run folder on rank 0 and removes incomplete checkpoints. Returns its path.
std::string RunSetup::choose_folder() {
  RunFolder& folder = parts_.folder;
  folder.path = config_.run.run_dir();
  const bool from_path = options_.resume != "auto" && options_.resume != "never";
  if (folder.path.empty() && from_path) folder.path = run_of_checkpoint(options_.resume);
  if (folder.path.empty()) folder.path = create_run_folder(config_.run);
  folder.require_own_files(config_.run);
  folder.prepare();
  parts_.lock = std::make_unique<RunLock>(folder.path);
  Checkpoints(folder.checkpoints(), 1).clean();
  return folder.path.string();
}

// Returns 0 without metrics.utilization. That a GPU has too little free memory does not end the
// run.
double RunSetup::measured_peak() {
  if (!config_.run.metrics().utilization() || !options_.measure_peak_flops) return 0;
  try {
    return options_.measure_peak_flops(config_, communicator_, *parts_.backend);
  } catch (const Error& error) {
    parts_.reporter->warn(fmt::format(
        "records have no utilization, since the peak rate is unknown: {}", error.what()));
    return 0;
  }
}

void RunSetup::compile() {
  const int threads = loader_threads(config_, parts_.training->in_memory(),
                                     spare_cores(config_, communicator_, *parts_.device));
  const double peak = measured_peak();
  parts_.step = std::make_unique<Step>(config_, parts_.graph, *parts_.backend, communicator_,
                                       batches_in_memory(config_, threads), parts_.shorter);
  BatchConfig& batch = *config_.run.mutable_batch();
  const BatchPlan& plan = parts_.step->plan();
  if (batch.micro() == kLargestMicro) batch.set_micro(plan.micro);
  comm::together(communicator_, [&] { check_statistics(plan); });
  const Grid& grid = parts_.step->stage().grid;
  for (const std::string& warning : {pipeline_warning(config_, plan, communicator_.size()),
                                     statistics_warning(parts_.graph, plan, grid),
                                     padding_problem(config_, parts_.graph, *parts_.training)}) {
    if (!warning.empty()) parts_.reporter->warn(warning);
  }
  if (communicator_.rank() == 0) {
    for (const std::string& line :
         data::class_problems(config_.run.data(), *parts_.training, *parts_.evaluation)) {
      parts_.reporter->warn(line);
    }
  }
  parts_.work = std::make_unique<StepWork>(*parts_.step, communicator_, peak);
  parts_.checks = std::make_unique<Checks>(config_.run.checks(), communicator_, *parts_.step);
}

void RunSetup::create_loader() {
  const int spare = spare_cores(config_, communicator_, *parts_.device);
  comm::together(communicator_, [&] {
    const auto options_for = [&](const data::Dataset& dataset) {
      return loader_options(config_, communicator_, dataset, spare);
    };
    parts_.loader = std::make_unique<data::Loader>(
        *parts_.training, *parts_.device, training_loader_options(options_for(*parts_.training)));
    data::LoaderOptions evaluation = options_for(*parts_.evaluation);
    evaluation.order = data::evaluation_order(parts_.order, *parts_.evaluation);
    const Step& step = *parts_.step;
    parts_.evaluator = std::make_unique<Evaluator>(
        parts_.graph, *parts_.backend, communicator_, *parts_.evaluation, parts_.predictions,
        step.parameters(), step.evaluation_arrays(), step.activations(), step.plan(), evaluation,
        step.stage(), parts_.shorter);
  });
}

data::LoaderOptions RunSetup::training_loader_options(data::LoaderOptions options) const {
  options.order = parts_.order;
  options.global_batch = parts_.step->plan().global;
  options.capacity = parts_.step->plan().capacity;
  options.mix = parts_.mix.get();
  options.reads = reads_batches(config_, parts_.step->program());
  return options;
}

void RunSetup::resume() {
  start_.load();
  const CheckpointState& state = parts_.state;
  parts_.plan = std::make_unique<TrainingPlan>(config_.run, parts_.training->size(), state.step,
                                               SamplePosition{state.epoch, state.position});
  for (const std::string& warning : schedule_warnings(config_.run, parts_.training->size())) {
    parts_.reporter->warn(warning);
  }
}

void RunSetup::create_saver() {
  parts_.saver =
      std::make_unique<CheckpointSaver>(config_.run, communicator_, *parts_.reporter, parts_.state,
                                        parts_.step->state(), parts_.predictions);
  comm::together(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    parts_.saver->open(Checkpoints(parts_.folder.checkpoints(), config_.run.checkpoint().keep()),
                       start_.saved());
  });
}

void RunSetup::start_records() {
  const std::string environment = describe_environment(communicator_, *parts_.device);
  comm::together(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    write_descriptions(environment);
    parts_.reporter->open_metrics(parts_.resumed);
  });
  if (communicator_.rank() == 0) {
    parts_.work->count_padding(*parts_.training, parts_.order, config_.run.seed());
  }
  parts_.reporter->start(info(), parts_.resumed);
  if (communicator_.rank() == 0 && config_.run.metrics().tensorboard()) {
    parts_.tensorboard_media = std::make_unique<TensorBoardMedia>(
        config_.run.metrics(), *parts_.training, *parts_.step, *parts_.reporter);
  }
  if (options_.profile) {
    parts_.profiler =
        std::make_unique<Profiler>(*options_.profile, config_, communicator_, *parts_.step,
                                   parts_.loader.get(), parts_.folder.path);
  }
}

void RunSetup::write_descriptions(const std::string& environment) {
  const RunFolder& folder = parts_.folder;
  RunConfig resolved = config_.run;
  resolved.set_run_dir(folder.path.string());
  if (const size_t limit = parts_.step->memory_limit(); limit > 0) {
    resolved.mutable_memory()->set_limit_bytes(static_cast<int64_t>(limit));
  }
  replace_durably(folder.config(), to_text(resolved));
  replace_durably(folder.environment(), environment);
  write_sample_info(folder.path, sample_info_of(*parts_.training));
  fs::remove(folder.summary());  // outdated once this run trains further
}

RunInfo RunSetup::info() const {
  const data::Dataset& training = *parts_.training;
  const data::Dataset& evaluation = *parts_.evaluation;
  RunInfo info;
  info.device = parts_.device.get();
  info.parameters = parts_.step->parameters().count();
  info.trained_parameters = parts_.step->parameters().trained_count();
  for (const int begin : parts_.step->stage().stage.begins) {
    info.last_layers.push_back(parts_.graph.nodes[static_cast<size_t>(begin) - 1].name);
  }
  info.recomputation = recomputation_text(parts_.step->program());
  info.initial = start_.initial();
  info.resume = options_.resume;
  info.training_data = training.description();
  info.evaluation_data = evaluation.description();
  info.bad_records = bad_records_at_open(training, evaluation, config_.run.data().has_holdout());
  info.padding = padding_text(config_, parts_.order);
  info.samples_per_epoch = training.size();
  info.steps_per_epoch = parts_.plan->steps_per_epoch();
  info.total_steps = parts_.plan->total_steps();
  info.tokens_per_sample = training.spec().tokens_per_sample();
  info.predictions = parts_.predictions;
  info.work = parts_.work.get();
  return info;
}

}  // namespace trireme::train
