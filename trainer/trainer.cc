#include "trainer/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/control.h"
#include "core/fault_point.h"
#include "data/loader.h"
#include "trainer/checkpoint.h"
#include "trainer/device.h"
#include "trainer/evaluator.h"
#include "trainer/file.h"
#include "trainer/reporter.h"
#include "trainer/run_folder.h"
#include "trainer/schedule.h"
#include "trainer/step.h"
#include "trainer/stop.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The run that a path given to --resume belongs to; empty when it belongs to none.
fs::path run_of(const fs::path& resume) {
  const fs::path path = fs::weakly_canonical(resume);
  if (fs::is_directory(path / "checkpoints")) return path;
  if (path.filename() == "checkpoints") return path.parent_path();
  if (path.parent_path().filename() == "checkpoints") return path.parent_path().parent_path();
  return {};
}

LoaderOptions loader_options(const Config& config, const Communicator& communicator,
                             const BatchPlan& plan) {
  LoaderOptions options;
  options.seed = config.run.seed();
  options.global_batch = plan.global;
  options.capacity = plan.capacity;
  options.rank = communicator.rank();
  options.ranks = communicator.size();
  options.shuffle = config.run.data().shuffle();
  options.threads = config.run.data().threads();
  options.depth = config.run.data().prefetch();
  return options;
}

class Run {
 public:
  Run(const Config& config, Communicator& communicator, const TrainOptions& options)
      : config_(config),
        train_(config.run.train()),
        communicator_(communicator),
        options_(options) {}

  TrainResult execute() {
    open_machine();
    open_folder();
    step_ = std::make_unique<Step>(config_, graph_, *backend_, communicator_);
    make_loader();
    resume();
    if (finished() && complete()) {
      reporter_->nothing_left(state_);
      Summary summary;
      summary.status = "done";
      summary.epochs = state_.epoch;
      summary.steps = state_.step;
      return {ExitCode::kDone, folder_.path.string(), summary};
    }
    start_records();
    steps();
    return end();
  }

 private:
  // Whatever can be wrong with the configuration, the data and the network shows here, before
  // anything is written.
  void open_machine() {
    together(communicator_, [&] { plan_batch(config_, communicator_.size()); });
    device_ = create_device(config_, communicator_);
    backend_ = create_backend(config_, *device_);
    together(communicator_, [&] {
      training_ = open_data(config_, Part::kTraining);
      evaluation_ = open_data(config_, Part::kEvaluation);
      check_alike(*training_, *evaluation_);
      graph_ = build_network(config_, training_->spec());
    });
  }

  void open_folder() {
    std::string path;
    together(communicator_, [&] {
      if (communicator_.rank() != 0) return;
      folder_.path = config_.run.run_dir();
      const bool from_path = options_.resume != "auto" && options_.resume != "never";
      if (folder_.path.empty() && from_path) folder_.path = run_of(options_.resume);
      if (folder_.path.empty()) folder_.path = default_run_folder(config_.run);
      folder_.prepare();
      Checkpoints(folder_.checkpoints(), 1).clean();
      path = folder_.path.string();
    });
    folder_.path = broadcast(communicator_, path, 0);
    const WatchdogConfig& watch = config_.run.watchdog();
    communicator_.ledger().configure({.timeout = watch.timeout_seconds(),
                                      .first_timeout = watch.first_timeout_seconds(),
                                      .straggler = watch.straggler_fraction(),
                                      .log = folder_.log(communicator_.rank())});
    reporter_ = std::make_unique<Reporter>(config_, communicator_, folder_, options_.quiet);
  }

  void make_loader() {
    together(communicator_, [&] {
      const LoaderOptions loader = loader_options(config_, communicator_, step_->plan());
      loader_ = std::make_unique<Loader>(*training_, *device_, loader);
      const int64_t per_epoch = loader_->batches_per_epoch();
      // The schedule is that of the whole run; max_steps only cuts it off.
      planned_steps_ = train_.has_epochs() ? train_.epochs() * per_epoch : train_.max_steps();
      schedule_ = std::make_unique<Schedule>(config_.run.schedule(), per_epoch, planned_steps_);
      evaluator_ = std::make_unique<Evaluator>(
          graph_, *backend_, communicator_, *evaluation_, step_->parameters(), step_->memory(),
          step_->program().activation_bytes(), step_->plan().micro);
    });
  }

  TrainedArrays arrays() {
    TrainedArrays arrays{
        step_->parameters(), *backend_, step_->memory().parameters, step_->memory().running, {}};
    for (Optimizer::StateArray& array : step_->optimizer().state()) {
      arrays.optimizer.push_back({array.name, array.values.data()});
    }
    return arrays;
  }

  // Rank 0 reads, since others may see no disk of its; then all hold the same.
  void resume() {
    step_->initialise();
    std::string found;
    together(communicator_, [&] {
      if (communicator_.rank() != 0) return;
      resumed_ = choose_checkpoint();
      if (!resumed_) return;
      load_model(*resumed_, arrays());
      load_optimizer(*resumed_, arrays());
      found = resumed_->path.string() + "\n" + to_json(resumed_->state);
      if (resumes_here()) {
        Checkpoints(folder_.checkpoints(), 1).set_aside_after(resumed_->state.step);
        saved_at_ = resumed_->state.step;
      }
    });
    found = broadcast(communicator_, found, 0);
    state_.seed = config_.run.seed();
    if (found.empty()) return;
    const size_t cut = found.find('\n');
    const std::string path = found.substr(0, cut);
    resumed_ = {path, state_from_json(found.substr(cut + 1), path)};
    state_ = resumed_->state;
    broadcast_arrays();
    step_->parameters_changed();
    if (state_.loss_scale) step_->optimizer().set_loss_scale(*state_.loss_scale, step_->stream());
    averaged_at_ = state_.step;
    if (state_.config_hash != config_hash(config_.run)) {
      reporter_->warn(
          "the configuration differs from that of the checkpoint in what decides the result");
    }
  }

  std::optional<FoundCheckpoint> choose_checkpoint() {
    const Warn warn = [&](const std::string& text) { reporter_->warn(text); };
    if (options_.resume == "auto") return newest_checkpoint(folder_.checkpoints(), warn);
    if (options_.resume != "never") return find_checkpoint(options_.resume, warn);
    if (!Checkpoints(folder_.checkpoints(), 1).list().empty()) {
      throw ConfigError(
          config_.where("run_dir"),
          folder_.path.string() +
              " already holds checkpoints, which --resume never would overwrite; remove them or "
              "choose another --run-dir");
    }
    return std::nullopt;
  }

  // Whether the checkpoint is one of this run's own.
  bool resumes_here() const {
    return fs::equivalent(fs::absolute(resumed_->path / ".."), folder_.checkpoints());
  }

  void broadcast_arrays() {
    const Parameters& parameters = step_->parameters();
    Stream& stream = step_->stream();
    Communicator& devices = step_->communicator();
    const TrainedArrays all = arrays();
    devices.broadcast(all.values, parameters.elements, DType::kF32, 0, stream);
    devices.broadcast(all.running, parameters.running_elements, DType::kF32, 0, stream);
    for (const auto& array : all.optimizer) {
      devices.broadcast(array.values, parameters.elements, DType::kF32, 0, stream);
    }
    stream.synchronize();
  }

  RunFacts facts() const {
    RunFacts facts;
    facts.device = device_.get();
    facts.parameters = step_->parameters().count();
    facts.training_data = training_->description();
    facts.evaluation_data = evaluation_->description();
    facts.steps_per_epoch = loader_->batches_per_epoch();
    facts.total_steps =
        train_.has_max_steps() ? std::min(planned_steps_, train_.max_steps()) : planned_steps_;
    facts.classifies = training_->spec().classes > 0;
    return facts;
  }

  bool finished() const {
    return (train_.has_epochs() && state_.epoch >= train_.epochs()) ||
           (train_.has_max_steps() && state_.step >= train_.max_steps());
  }

  // Whether an earlier process has written the end of this run.
  bool complete() {
    bool done = false;
    if (communicator_.rank() == 0 && fs::exists(folder_.summary())) {
      const auto summary = nlohmann::json::parse(read_text(folder_.summary()), nullptr, false);
      done = summary.is_object() && summary.value("status", "") == "done" &&
             summary.value("steps", int64_t{0}) == state_.step;
    }
    return broadcast(communicator_, done ? "yes" : "", 0) == "yes";
  }

  void start_records() {
    together(communicator_, [&] {
      if (communicator_.rank() != 0) return;
      RunConfig resolved = config_.run;
      resolved.set_run_dir(folder_.path.string());
      replace_durably(folder_.config(), to_text(resolved));
      fs::remove(folder_.summary());  // of what this run goes beyond
      reporter_->open_metrics(resumed_ ? state_.step : 0);
    });
    reporter_->start(facts(), resumed_);
  }

  void steps() {
    loader_->start(state_.epoch, state_.position);
    reporter_->begin_steps();
    while (!stopped_ && !finished()) {
      communicator_.ledger().enter(Phase::kData, state_.step);
      fault_point("step", state_.step);
      const Batch& batch = loader_->next();
      LaunchedStep launched{batch, schedule_->at(state_.step), loader_->wait_seconds()};
      launched_.push_back(launched);
      const auto result = step_->run(batch, state_.step, static_cast<float>(launched.learning_rate),
                                     signals_.requested());
      ++state_.step;
      state_.epoch = batch.epoch + (batch.last_of_epoch ? 1 : 0);
      state_.position = batch.last_of_epoch ? 0 : batch.position + batch.global_rows;
      if (result) done(*result);
      after_step(launched.batch.last_of_epoch);
    }
    finish_steps();
    if (!stopped_ && evaluated_at_ != state_.step) evaluate();
  }

  void finish_steps() {
    if (const auto result = step_->finish()) done(*result);
  }

  // Steps are done in the order in which they were launched, a GPU's one step later.
  void done(const StepResult& result) {
    const LaunchedStep launched = launched_.front();
    launched_.pop_front();
    const int64_t step = result.step + 1;
    communicator_.ledger().step_done(result.timings.total(), result.timings.communication);
    const float loss_sum = result.metrics[kMetricLoss];
    if (launched.batch.position == 0) state_.epoch_loss_sum = 0, state_.epoch_samples = 0;
    state_.epoch_loss_sum += static_cast<double>(loss_sum);
    state_.epoch_samples += launched.batch.global_rows;
    state_.loss_scale = result.loss_scale;
    refuse_if_not_finite(loss_sum, step, launched.batch.epoch);
    const bool checks = due(config_.run.checks().parameter_checksum_every_steps(), step);
    reporter_->step(step, launched, result, checks ? std::optional(checksum(step)) : std::nullopt);
    stopped_ = stopped_ || result.metrics[kMetricStopRequests] > 0;
  }

  void refuse_if_not_finite(float loss_sum, int64_t step, int64_t epoch) {
    if (std::isfinite(loss_sum)) return;
    // All ranks hold the same sum, so all leave here.
    agree(communicator_,
          std::make_exception_ptr(Error(fmt::format(
              "the loss is {} at step {} (epoch {}); nothing of this step was saved. Try a lower "
              "schedule.learning_rate, schedule.warmup or train.clip_norm",
              loss_sum, step, epoch + 1))));
  }

  // All ranks must hold the same parameters.
  uint64_t checksum(int64_t step) {
    const uint64_t own = step_->parameter_checksum();
    const auto texts = all_gather(communicator_, std::to_string(own));
    std::string strays;
    for (size_t rank = 1; rank < texts.size(); ++rank) {
      if (texts[rank] != texts[0]) strays += fmt::format("{}{}", strays.empty() ? "" : ", ", rank);
    }
    if (strays.empty()) return own;
    agree(
        communicator_,
        std::make_exception_ptr(Error(fmt::format(
            "after step {} the parameters of rank {} differ from those of rank 0", step, strays))));
    return own;
  }

  static bool due(int64_t every, int64_t count) { return every > 0 && count % every == 0; }

  void after_step(bool epoch_done) {
    const CheckpointConfig& checkpoint = config_.run.checkpoint();
    const bool evaluates = due(train_.eval_every_steps(), state_.step) ||
                           (epoch_done && due(train_.eval_every_epochs(), state_.epoch));
    const bool saves = due(checkpoint.every_steps(), state_.step) ||
                       (epoch_done && due(checkpoint.every_epochs(), state_.epoch));
    // What looks at parameters or at the epoch's loss comes after all that was launched.
    const bool checks = due(config_.run.checks().parameter_checksum_every_steps(), state_.step);
    if (evaluates || saves || checks || epoch_done || finished()) finish_steps();
    if (!stopped_ && (evaluates || finished())) evaluate();
    if (epoch_done) reporter_->epoch_done(state_);
    // The last one is saved by end(), which does not go on when that fails.
    if (saves && !stopped_ && !finished()) save(/*must=*/false);
    if (evaluates || saves || epoch_done) reporter_->begin_steps();
  }

  void average_running_values() {
    if (averaged_at_ == state_.step) return;
    step_->average_running_values();
    averaged_at_ = state_.step;
  }

  void evaluate() {
    average_running_values();
    const Evaluation result = evaluator_->run([this] { return signals_.requested(); });
    stopped_ = stopped_ || result.stopped;
    if (result.stopped) return;
    evaluated_at_ = state_.step;
    if (training_->spec().classes > 0 && result.accuracy > state_.best_accuracy.value_or(-1)) {
      state_.best_accuracy = result.accuracy;
      state_.best_step = state_.step;
    }
    reporter_->evaluated(state_, result);
  }

  // Rank 0 writes; all ranks call it together.
  void save(bool must) {
    communicator_.ledger().enter(Phase::kCheckpoint);
    fault_point("checkpoint", state_.step);
    average_running_values();
    if (communicator_.rank() != 0 || saved_at_ == state_.step) return;
    const auto start = Clock::now();
    state_.config_hash = config_hash(config_.run);
    state_.seed = config_.run.seed();
    state_.ranks = communicator_.size();
    const Checkpoints checkpoints(folder_.checkpoints(), config_.run.checkpoint().keep());
    try {
      reporter_->saving();
      const fs::path path = checkpoints.save(state_, arrays());
      saved_at_ = state_.step;
      reporter_->saved(state_, path, seconds_since(start));
    } catch (const Error& error) {
      if (must) throw;
      reporter_->warn(
          fmt::format("no checkpoint at step {}, training goes on: {}", state_.step, error.what()));
    }
  }

  TrainResult end() {
    average_running_values();
    together(communicator_, [&] { save(/*must=*/true); });
    const Summary summary = reporter_->end(state_, stopped_ ? "stopped" : "done");
    return {stopped_ ? ExitCode::kResumable : ExitCode::kDone, folder_.path.string(), summary};
  }

  const Config& config_;
  const TrainConfig& train_;
  Communicator& communicator_;
  const TrainOptions& options_;
  StopSignals signals_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Dataset> training_;
  std::unique_ptr<Dataset> evaluation_;
  Graph graph_;
  RunFolder folder_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Schedule> schedule_;
  std::deque<LaunchedStep> launched_;
  int64_t planned_steps_ = 0;
  std::optional<FoundCheckpoint> resumed_;
  CheckpointState state_;
  bool stopped_ = false;
  int64_t averaged_at_ = -1;
  int64_t evaluated_at_ = -1;
  int64_t saved_at_ = -1;
};

}  // namespace

TrainResult train(const Config& config, Communicator& communicator, const TrainOptions& options) {
  return Run(config, communicator, options).execute();
}

std::unique_ptr<Dataset> open_data(const Config& config, Part part) {
  try {
    return open_dataset(config.run.data(), part);
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

ModelInput model_input(const SampleSpec& spec) {
  return {spec.input, spec.target, spec.classes, spec.scale, spec.mean, spec.deviation};
}

Graph build_network(const Config& config, const SampleSpec& spec) {
  try {
    return build_graph(config.run.model(), model_input(spec));
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

}  // namespace trireme
