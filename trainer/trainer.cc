#include "trainer/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/control.h"
#include "core/fault_point.h"
#include "core/text.h"
#include "data/fingerprint.h"
#include "data/loader.h"
#include "data/mix.h"
#include "trainer/agreement.h"
#include "trainer/bad_data.h"
#include "trainer/checks.h"
#include "trainer/course.h"
#include "trainer/device.h"
#include "trainer/environment.h"
#include "trainer/evaluator.h"
#include "trainer/file.h"
#include "trainer/illustrations.h"
#include "trainer/init_from.h"
#include "trainer/inputs.h"
#include "trainer/last_words.h"
#include "trainer/loading.h"
#include "trainer/profile/profiler.h"
#include "trainer/rank_memory.h"
#include "trainer/reporter.h"
#include "trainer/resume_check.h"
#include "trainer/run_folder.h"
#include "trainer/sample_facts.h"
#include "trainer/saver.h"
#include "trainer/step.h"
#include "trainer/stop.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
// The run that a path given to --resume belongs to; empty when it belongs to none.
fs::path run_of(const fs::path& resume) {
  const fs::path path = fs::weakly_canonical(resume);
  if (fs::is_directory(path / "checkpoints")) return path;
  if (path.filename() == "checkpoints") return path.parent_path();
  if (path.parent_path().filename() == "checkpoints") return path.parent_path().parent_path();
  return {};
}

class Run {
 public:
  Run(const Config& config, Communicator& communicator, const TrainOptions& options)
      : config_(config),
        train_(config.run.train()),
        communicator_(communicator),
        options_(options) {
    prepare_last_words({});
  }
  ~Run() {
    if (options_.stop) options_.stop->at_deadline({});
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  TrainResult execute() {
    if (!prepare()) return stopped_before_the_first_step();
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
  // False: some rank was told to stop on the way, which all look at between the stages.
  bool prepare() {
    return stage(&Run::open_machine) && stage(&Run::open_folder) && stage(&Run::compile) &&
           stage(&Run::make_loader) && stage(&Run::resume) && stage(&Run::make_saver) &&
           !any_told_to_stop();
  }

  bool stage(void (Run::*work)()) {
    if (any_told_to_stop()) return false;
    (this->*work)();
    return true;
  }

  bool any_told_to_stop() {
    double told = told_to_stop() ? 1 : 0;
    sum(communicator_, {&told, 1});
    if (told > 0) stop();
    return stopped_;
  }

  // By a signal, or by a save that failed.
  bool told_to_stop() const {
    return (saver_ && saver_->failed()) || (options_.stop && options_.stop->requested());
  }

  // All ranks come here at the same place, whichever of them were told.
  void stop() {
    stopped_ = true;
    if (options_.stop) options_.stop->follow();
  }

  void prepare_last_words(const fs::path& checkpoints) {
    if (!options_.stop) return;
    options_.stop->at_deadline([&communicator = communicator_, checkpoints](double grace) {
      say_last_words(communicator, checkpoints, grace);
    });
  }

  TrainResult stopped_before_the_first_step() {
    if (communicator_.rank() == 0 && !options_.quiet) {
      std::puts("stopped by a signal before the first step; nothing was there to save");
    }
    Summary summary;
    summary.status = "stopped";
    summary.steps = state_.step;
    return {ExitCode::kResumable, folder_.path.string(), summary};
  }

  // Whatever can be wrong with the configuration, the data and the network shows here, before
  // anything is written.
  void open_machine() {
    together(communicator_, [&] { plan_batch(config_, communicator_.size()); });
    device_ = create_device(config_, communicator_);
    backend_ = create_backend(config_, *device_);
    together(communicator_, [&] {
      fault_point("open_data");
      const auto progress = tell_opening(communicator_);
      training_ = open_data(config_, Part::kTraining, progress);
      evaluation_ = open_data(config_, Part::kEvaluation, progress, training_->columns());
      check_alike(*training_, *evaluation_);
      mix_ = make_mix(config_, training_->spec());
      graph_ = build_network(config_, training_->spec());
      require_least_room();
      read_initial();
    });
    require_same_samples(communicator_, *training_, *evaluation_);
    require_alike(communicator_, input_facts(*device_, *training_, *evaluation_, graph_));
  }

  // Before the run's folder is made; the step compares what it plans.
  void require_least_room() const {
    const bool cpu = device_->kind() == DeviceKind::kCpu;
    const BatchPlan batch = plan_batch(config_, communicator_.size());
    require_room(config_, least_memory(config_, graph_, batch, device_->kind()), room_of(*device_),
                 cpu ? communicator_.placement().local_ranks : 1);
  }

  // By rank 0. A run that goes on needs no values to begin with.
  void read_initial() {
    if (communicator_.rank() != 0 || !config_.run.model().has_init_from()) return;
    const bool starts = options_.resume == "never" || (options_.resume == "auto" && !has_saved());
    if (!starts) return;
    try {
      initial_ = read_initial_values(config_.run.model().init_from(), graph_);
    } catch (const ConfigError& error) {
      throw config_.located(error);
    }
  }

  bool has_saved() const {
    const RunFolder own{config_.run.run_dir()};
    return !own.path.empty() && !Checkpoints(own.checkpoints(), 1).list().empty();
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
      lock_ = std::make_unique<RunLock>(folder_.path);
      Checkpoints(folder_.checkpoints(), 1).clean();
      path = folder_.path.string();
    });
    folder_.path = broadcast(communicator_, path, 0);
    prepare_last_words(folder_.checkpoints());
    const WatchdogConfig& watch = config_.run.watchdog();
    communicator_.ledger().configure({.timeout = watch.timeout_seconds(),
                                      .first_timeout = watch.first_timeout_seconds(),
                                      .checkpoint = config_.run.checkpoint().timeout_seconds(),
                                      .straggler = watch.straggler_fraction(),
                                      .log = folder_.log(communicator_.rank())});
    reporter_ = std::make_unique<Reporter>(config_, communicator_, folder_, options_.quiet);
    if (lock_ && !lock_->problem().empty()) reporter_->warn(lock_->problem());
    for (const std::string& warning : config_.warnings) reporter_->warn(warning);
  }

  void compile() {
    step_ = std::make_unique<Step>(config_, graph_, *backend_, communicator_);
    checks_ = std::make_unique<Checks>(config_.run.checks(), communicator_, *step_);
  }

  void make_loader() {
    const int spare = spare_cores(config_, communicator_, *device_);
    together(communicator_, [&] {
      const auto options_for = [&](const Dataset& dataset) {
        return loader_options(config_, communicator_, dataset, spare);
      };
      loader_ = std::make_unique<Loader>(*training_, *device_, in_order(options_for(*training_)));
      evaluator_ = std::make_unique<Evaluator>(
          graph_, *backend_, communicator_, *evaluation_, step_->parameters(), step_->arrays(),
          step_->activations(), step_->plan().micro, options_for(*evaluation_));
    });
  }

  LoaderOptions in_order(LoaderOptions options) const {
    options.order = order_options(config_.run.data());
    options.global_batch = step_->plan().global;
    options.capacity = step_->plan().capacity;
    options.mix = mix_.get();
    return options;
  }

  TrainedArrays arrays() {
    TrainedArrays arrays{
        step_->parameters(), *backend_, step_->arrays().parameters, step_->arrays().running, {}};
    for (Optimizer::StateArray& array : step_->optimizer().state()) {
      arrays.optimizer.push_back({array.name, array.values.data()});
    }
    return arrays;
  }

  void resume() {
    step_->initialise();
    load_checkpoint();
    course_ = std::make_unique<Course>(config_.run, training_->size(), state_.step,
                                       SamplePosition{state_.epoch, state_.position});
  }

  // Rank 0 reads, since others may see no disk of its; then all hold the same.
  void load_checkpoint() {
    std::string found;
    together(communicator_, [&] {
      if (communicator_.rank() != 0) return;
      data_ = RunData{fingerprint_of(*training_), fingerprint_of(*evaluation_)};
      resumed_ = choose_checkpoint();
      if (!resumed_ && initial_) load_initial_values(*initial_, arrays());
      if (!resumed_) return;
      // The configuration comes first: it may be why the data is another.
      const auto changes =
          check_changes(*resumed_, {config_, graph_, communicator_.size(), training_->size()});
      compare_data();
      reporter_->changed(*resumed_, changes);
      load_model(*resumed_, arrays());
      load_optimizer(*resumed_, arrays());
      if (resumes_here()) {
        resumed_->path = Checkpoints(folder_.checkpoints(), 1)
                             .go_on_from(resumed_->path, resumed_->state.step,
                                         [&](const std::string& text) { reporter_->alert(text); });
      }
      found = resumed_->path.string() + '\0' + to_json(resumed_->state);
    });
    found = broadcast(communicator_, found, 0);
    state_.seed = config_.run.seed();
    state_.data = data_;
    if (config_.run.model().has_init_from() || !found.empty()) {
      broadcast_arrays();
      step_->parameters_changed();
    }
    if (found.empty()) return;
    const size_t cut = found.find('\0');
    const std::string path = found.substr(0, cut);
    resumed_ = {path, state_from_json(found.substr(cut + 1), path)};
    state_ = resumed_->state;
    state_.data = data_;
    if (state_.position >= training_->size()) {  // of data that had more samples
      ++state_.epoch;
      state_.position = 0;
    }
    forget_lost_best();
    if (state_.loss_scale) step_->optimizer().set_loss_scale(*state_.loss_scale, step_->stream());
    averaged_at_ = state_.step;
  }

  // By rank 0. Throws DataError when the data is known not to be that of the checkpoint, unless the
  // user accepts that.
  void compare_data() {
    const std::string path = resumed_->path.string();
    const std::optional<RunData>& saved = resumed_->state.data;
    const std::string change = data_change(resumed_->state, *data_);
    if (change.empty() && !saved) {
      reporter_->warn(path +
                      " does not say which data it was saved from, so that nothing could tell "
                      "whether that has changed");
    }
    if (change.empty()) return;
    if (!options_.accept_data_change) throw data_refusal(*resumed_, change);
    reporter_->warn(path + ": " + change + "; accepted");
    if (config_.run.data().has_holdout() && saved && saved->evaluation != data_->evaluation) {
      reporter_->warn(
          "other samples than before are held out for evaluation: the network may have been "
          "trained on some of them, so that evaluations look better than they are");
    }
  }

  // The best may be of a future that was given up, have stayed in another run's folder, or have
  // been measured on other samples.
  void forget_lost_best() {
    if (communicator_.rank() != 0) return;
    const std::optional<RunData>& before = resumed_->state.data;
    const bool same_samples = !before || before->evaluation == data_->evaluation;
    if (same_samples && Checkpoints(folder_.checkpoints(), 1).best()) return;
    state_.best_accuracy.reset();
    state_.best_loss.reset();
  }

  void make_saver() {
    saver_ = std::make_unique<Saver>(config_.run, communicator_, *reporter_, state_,
                                     training_->spec().classes > 0);
    together(communicator_, [&] {
      if (communicator_.rank() != 0) return;
      std::optional<fs::path> newest;
      if (resumed_ && resumes_here()) newest = resumed_->path;
      saver_->open(Checkpoints(folder_.checkpoints(), config_.run.checkpoint().keep()), arrays(),
                   newest);
    });
  }

  std::optional<FoundCheckpoint> choose_checkpoint() {
    const Warn warn = [&](const std::string& text) { reporter_->warn(text); };
    if (options_.resume == "auto") return newest_checkpoint(folder_.checkpoints(), warn);
    const bool has_own = !Checkpoints(folder_.checkpoints(), 1).list().empty();
    if (options_.resume != "never") {
      if (std::error_code none; !fs::exists(options_.resume, none)) {
        const std::vector<std::string> words = {"auto", "never"};
        throw DataError("--resume " + options_.resume,
                        "no such folder" + did_you_mean(options_.resume, words));
      }
      FoundCheckpoint found = find_checkpoint(options_.resume, warn);
      if (!has_own || is_own(found)) return found;
      throw ConfigError(
          config_.where("run_dir"),
          fmt::format("{} already holds checkpoints of its own, which a run from {} would mix with "
                      "its; choose another --run-dir, or go on from its own with --resume auto",
                      folder_.path.string(), found.path.string()));
    }
    if (has_own) {
      throw ConfigError(
          config_.where("run_dir"),
          folder_.path.string() +
              " already holds checkpoints, which --resume never would overwrite; remove them or "
              "choose another --run-dir");
    }
    return std::nullopt;
  }

  // Whether the checkpoint is one of this run's own.
  bool is_own(const FoundCheckpoint& checkpoint) const {
    return fs::equivalent(fs::absolute(checkpoint.path / ".."), folder_.checkpoints());
  }
  bool resumes_here() const { return is_own(*resumed_); }

  void broadcast_arrays() {
    const Parameters& parameters = step_->parameters();
    Stream& stream = step_->stream();
    Communicator& devices = step_->communicator();
    const TrainedArrays all = arrays();
    devices.broadcast(all.values, parameters.elements, DType::kF32, 0, stream);
    devices.broadcast(all.running, parameters.running_elements, DType::kF32, 0, stream);
    for (const auto& array : all.optimizer) {
      devices.broadcast(array.values, parameters.trained_elements, DType::kF32, 0, stream);
    }
    stream.synchronize();
  }

  RunFacts facts() const {
    RunFacts facts;
    facts.device = device_.get();
    facts.parameters = step_->parameters().count();
    facts.trained_parameters = step_->parameters().trained_count();
    if (initial_) facts.initial = initial_->summary;
    facts.training_data = training_->description();
    facts.evaluation_data = evaluation_->description();
    facts.bad_records = bad_when_opened(*training_, *evaluation_, config_.run.data().has_holdout());
    facts.samples_per_epoch = training_->size();
    facts.steps_per_epoch = course_->steps_per_epoch();
    facts.total_steps = course_->total_steps();
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
      done = summary.is_object() && summary.contains("status") && summary.contains("steps") &&
             summary["status"] == "done" && summary["steps"] == state_.step;
    }
    return broadcast(communicator_, done ? "yes" : "", 0) == "yes";
  }

  void start_records() {
    const std::string environment = describe_environment(communicator_, *device_);
    together(communicator_, [&] {
      if (communicator_.rank() != 0) return;
      RunConfig resolved = config_.run;
      resolved.set_run_dir(folder_.path.string());
      replace_durably(folder_.config(), to_text(resolved));
      replace_durably(folder_.environment(), environment);
      write_sample_facts(folder_.path, facts_of(*training_));
      fs::remove(folder_.summary());  // of what this run goes beyond
      reporter_->open_metrics(resumed_ ? state_.step : 0);
    });
    reporter_->start(facts(), resumed_);
    if (communicator_.rank() == 0 && config_.run.metrics().tensorboard()) {
      illustrations_ =
          std::make_unique<Illustrations>(config_.run.metrics(), *training_, *step_, *reporter_);
    }
    if (options_.profile) {
      profiler_ = std::make_unique<Profiler>(*options_.profile, config_, communicator_, *step_,
                                             loader_.get(), folder_.path);
    }
  }

  void steps() {
    loader_->start(state_.epoch, state_.position);
    if (state_.evaluation_due) evaluate();
    if (saver_->is_best() && !finished()) save();
    reporter_->begin_steps();
    while (!stopped_ && !finished()) {
      communicator_.ledger().enter(Phase::kData, state_.step);
      fault_point("step", state_.step);
      saver_->look_after();
      const Batch& batch = next_batch();
      if (illustrations_) illustrations_->batch(batch, state_.step);
      const double rate = course_->learning_rate({batch.epoch, batch.position});
      LaunchedStep launched{batch, rate, loader_->wait_seconds()};
      launched_.push_back(launched);
      const auto result = step_->run(batch, state_.step, static_cast<float>(launched.learning_rate),
                                     told_to_stop());
      ++state_.step;
      state_.epoch = batch.epoch + (batch.last_of_epoch ? 1 : 0);
      state_.position = batch.last_of_epoch ? 0 : batch.position + batch.global_rows;
      if (result) done(*result);
      after_step(launched.batch.last_of_epoch);
    }
    finish_steps();
    end_profile();
    if (!stopped_ && evaluated_at_ != state_.step) evaluate();
  }

  const Batch& next_batch() {
    if (!profiler_) return loader_->next();
    if (profiler_->opens_before(state_.step + 1)) {
      profiler_->open();
      reporter_->begin_steps();
    }
    const auto asked = Profiler::Clock::now();
    const Batch& batch = loader_->next();
    if (profiler_->is_open()) profiler_->fetched(state_.step + 1, asked);
    return batch;
  }

  void close_profile() {
    finish_steps();
    const Profiler::Outcome outcome = profiler_->close();
    if (!outcome.problem.empty()) reporter_->warn("the profile: " + outcome.problem);
    if (!outcome.table.empty()) reporter_->profiled(outcome.table);
  }

  // The run may end within the window, or before it.
  void end_profile() {
    if (!profiler_) return;
    if (profiler_->is_open()) close_profile();
    if (const std::string why = profiler_->why_nothing(); !why.empty()) reporter_->warn(why);
  }

  void finish_steps() {
    if (const auto result = step_->finish()) done(*result);
  }

  // Steps are done in the order in which they were launched, a GPU's one step later.
  void done(const StepResult& result) {
    const LaunchedStep launched = launched_.front();
    launched_.pop_front();
    const int64_t step = result.step + 1;
    if (result.timeline) profiler_->done(step, *result.timeline);
    communicator_.ledger().step_done(result.timings.total(), result.timings.communication);
    if (launched.batch.position == 0) state_.epoch_loss_sum = 0, state_.epoch_samples = 0;
    state_.loss_scale = result.loss_scale;
    gradient_scale_ = result.gradient_scale;
    if (!result.loss_scale && result.skipped_steps > 0) {
      state_.loss_scale = LossScale{.skipped = result.skipped_steps};
    }
    count_left_out(launched, result);
    if (const auto found = checks_->look_at(result)) {
      not_finite(step, launched, *found);
    } else {
      count_loss(step, launched, result);
    }
    const bool compares = checks_->compares_after(step);
    reporter_->step(
        step, launched, result,
        compares ? std::optional(checks_->compare_ranks(step, /*averaged=*/false)) : std::nullopt);
    if (result.metrics[kMetricStopRequests] > 0) stop();
  }

  // The count comes out of the step's sums, so that all ranks know it and ask for reasons together.
  void count_left_out(const LaunchedStep& launched, const StepResult& result) {
    const int64_t samples = left_out(launched.batch.global_rows, result.metrics[kMetricSamples]);
    if (samples == 0) return;
    std::vector<std::string> reasons;
    if (reasons_asked_for_++ < kReasonsAskedFor) {
      const std::vector<std::string> own = loader_->bad_records().first;
      const size_t told = std::exchange(reasons_told_, own.size());
      reasons = gather_reasons(communicator_, {own.begin() + std::ptrdiff_t(told), own.end()});
    }
    reporter_->left_out(samples, reasons);
  }

  void count_loss(int64_t step, const LaunchedStep& launched, const StepResult& result) {
    const double sum = double{result.metrics[kMetricLoss]};
    const int64_t samples = launched.batch.global_rows -
                            left_out(launched.batch.global_rows, result.metrics[kMetricSamples]);
    if (samples == 0) return;
    state_.epoch_loss_sum += sum;
    state_.epoch_samples += samples;
    const double mean = sum / static_cast<double>(samples);
    if (const auto spike = loss_spikes_.add(mean)) {
      reporter_->loss_spike(step, launched.batch.epoch, mean, *spike);
    }
  }

  // The update was left out on all ranks, and all come here.
  void not_finite(int64_t step, const LaunchedStep& launched, const Checks::NotFinite& found) {
    reporter_->not_finite(step, launched.batch.epoch, found.what);
    if (!found.ends) return;
    throw AgreedError(found.what +
                          "; the step was left out on all ranks, and the run ends. If the same "
                          "comes again from the newest checkpoint, try a lower "
                          "schedule.learning_rate, schedule.warmup or train.clip_norm",
                      ExitCode::kFailure, 0);
  }

  static bool due(int64_t every, int64_t count) { return every > 0 && count % every == 0; }

  void after_step(bool epoch_done) {
    if (profiler_ && profiler_->closes_after(state_.step)) {
      close_profile();
      reporter_->begin_steps();
    }
    const CheckpointConfig& checkpoint = config_.run.checkpoint();
    const bool evaluates = due(train_.eval_every_steps(), state_.step) ||
                           (epoch_done && due(train_.eval_every_epochs(), state_.epoch));
    const bool saves = due(checkpoint.every_steps(), state_.step) ||
                       (epoch_done && due(checkpoint.every_epochs(), state_.epoch));
    // What looks at parameters or at the epoch's loss comes after all that was launched.
    const bool compares = checks_->compares_after(state_.step);
    if (evaluates || saves || compares || epoch_done || finished()) finish_steps();
    if (evaluates || finished()) evaluate();
    if (epoch_done) reporter_->epoch_done(state_);
    if (epoch_done && illustrations_) {
      illustrations_->epoch_done(state_.epoch, state_.step, gradient_scale_);
    }
    // The last one is saved by end(), which does not go on when that fails.
    if ((saves || saver_->is_best()) && !stopped_ && !finished()) save();
    if (evaluates || saves || epoch_done) reporter_->begin_steps();
  }

  void average_running_values() {
    if (averaged_at_ == state_.step) return;
    step_->average_running_values();
    averaged_at_ = state_.step;
  }

  void evaluate() {
    state_.evaluation_due = true;
    if (stopped_) return;  // it is made up for when the run goes on
    average_running_values();
    const bool last = finished();
    const Evaluation result = evaluator_->run([this] { return told_to_stop(); }, last);
    if (result.stopped) return stop();
    state_.evaluation_due = false;
    evaluated_at_ = state_.step;
    saver_->judge(result);
    reporter_->evaluated(state_, result);
    if (last) write_details(result);
  }

  // For people and reports; a disk that is full does not end the run.
  void write_details(const Evaluation& evaluation) {
    if (communicator_.rank() != 0) return;
    try {
      write_evaluation(folder_.evaluation(), {evaluation, state_, evaluation_->class_names()});
    } catch (const Error& error) {
      reporter_->warn(error.what());
    }
  }

  // All ranks call it together.
  void save() {
    prepare_to_save();
    if (lock_ && !lock_->holds() && !std::exchange(folder_lost_, true)) {
      reporter_->warn(lost_folder() + "; training goes on");
    }
    saver_->save(options_.wait_for_saves);
  }

  void prepare_to_save() {
    communicator_.ledger().enter(Phase::kCheckpoint);
    fault_point("checkpoint", state_.step);
    average_running_values();
    if (checks_->compares()) checks_->compare_ranks(state_.step, /*averaged=*/true);
  }

  TrainResult end() {
    prepare_to_save();
    together(communicator_, [&] {
      saver_->save_the_end();
      if (folder_lost_ || (lock_ && !lock_->holds())) {
        throw Error(fmt::format("{}. Step {} is saved in a new folder, {}", lost_folder(),
                                state_.step, folder_.checkpoints().string()));
      }
    });
    const Summary summary = reporter_->end(state_, stopped_ ? "stopped" : "done");
    return {stopped_ ? ExitCode::kResumable : ExitCode::kDone, folder_.path.string(), summary};
  }

  std::string lost_folder() const {
    return fmt::format(
        "run folder {} has been removed, emptied, moved or replaced while this run wrote to it: "
        "what "
        "it held, as config.txtpb, metrics.jsonl and earlier checkpoints, may be lost",
        folder_.path.string());
  }

  const Config& config_;
  const TrainConfig& train_;
  Communicator& communicator_;
  const TrainOptions& options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Dataset> training_;
  std::unique_ptr<Dataset> evaluation_;
  Graph graph_;
  RunFolder folder_;
  std::unique_ptr<RunLock> lock_;  // on rank 0
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<Checks> checks_;
  static constexpr int kReasonsAskedFor = 10;  // which takes time
  int reasons_asked_for_ = 0;
  size_t reasons_told_ = 0;
  LossSpikes loss_spikes_{config_.run.checks().loss_spike_deviations()};
  std::optional<InitialValues> initial_;  // on rank 0, until they are loaded
  std::unique_ptr<Mix> mix_;              // null: none
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Profiler> profiler_;  // null: not asked for
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Course> course_;
  std::deque<LaunchedStep> launched_;
  std::unique_ptr<Illustrations> illustrations_;  // null: nobody would see them
  float gradient_scale_ = 1;                      // of the latest step
  bool folder_lost_ = false;                      // on rank 0, which has warned of it
  std::optional<RunData> data_;                   // on rank 0
  std::optional<FoundCheckpoint> resumed_;
  CheckpointState state_;
  bool stopped_ = false;
  int64_t averaged_at_ = -1;
  int64_t evaluated_at_ = -1;
  std::unique_ptr<Saver> saver_;
};

}  // namespace

TrainResult train(const Config& config, Communicator& communicator, const TrainOptions& options) {
  return Run(config, communicator, options).execute();
}

}  // namespace trireme
