#include "trainer/run/reporter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "comm/control.h"
#include "core/clock.h"
#include "core/text.h"
#include "core/version.h"
#include "trainer/base/json.h"
#include "trainer/base/process.h"
#include "trainer/config/grid.h"
#include "trainer/config/monitor.h"
#include "trainer/report/evaluation_file.h"
#include "trainer/report/hyperparameters.h"
#include "trainer/report/sinks/csv.h"
#include "trainer/report/sinks/jsonl.h"
#include "trainer/report/sinks/prometheus.h"
#include "trainer/report/sinks/tensorboard.h"
#include "trainer/report/sinks/text.h"

namespace trireme::train {
namespace {

// Number of steps with a warning of the same kind; then only those whose count is a power of two.
constexpr int64_t kWarnings = 5;
constexpr double kSlowSave = 1;  // seconds; slower saves cause a warning
// How long to wait until records are written, before a checkpoint and at the end of a run.
constexpr MetricsHub::Seconds kCheckpointTimeout{5};
constexpr MetricsHub::Seconds kEndTimeout{3};

// Returns a + sign * b.
StepTimings sum_of(const StepTimings& a, const StepTimings& b, double sign = 1) {
  StepTimings sum;
  for (double StepTimings::*part :
       {&StepTimings::forward, &StepTimings::backward, &StepTimings::exposed, &StepTimings::update,
        &StepTimings::idle, &StepTimings::communication}) {
    sum.*part = a.*part + sign * b.*part;
  }
  return sum;
}

float mean_loss(const StepResult& result) {
  const float weight = result.metrics[ops::kMetricWeight];
  return weight > 0 ? result.metrics[ops::kMetricLoss] / weight : 0;
}

// Returns the mean loss of the epoch, NaN if all its steps were skipped.
double mean_loss(const CheckpointState& state) { return state.epoch_loss_sum / state.epoch_weight; }

}  // namespace

Reporter::Reporter(const RunConfig& config, comm::Communicator& communicator,
                   const RunFolder& folder, bool quiet)
    : config_(config),
      communicator_(communicator),
      folder_(folder),
      quiet_(quiet || communicator.rank() != 0),
      progress_(make_progress(0, 0)),
      started_(Clock::now()) {
  hub_.add(std::make_unique<LogSink>(folder.log(communicator.rank())));
  if (!quiet_) hub_.add(std::make_unique<ConsoleSink>(STDOUT_FILENO));
}

std::unique_ptr<Progress> Reporter::make_progress(int64_t epochs, int64_t total_steps) {
  const auto put = [this](std::string text) {
    hub_.write(ConsoleText{std::move(text)}, When::kNow);
  };
  return std::make_unique<Progress>(progress_options(quiet_, put), epochs, total_steps);
}

void Reporter::note(const std::string& text) {
  progress_->note(text);
  hub_.write(LogLine{text}, When::kNow);
}

void Reporter::warn_of_sink_problems() {
  for (const std::string& problem : hub_.problems()) warn(problem);
}

void Reporter::warn(const std::string& text) { note("warning: " + text); }

void Reporter::alert(const std::string& text) {
  hub_.write(LogLine{"warning: " + text}, When::kNow);
  if (!quiet_) warn_on_stderr(text);
}

void Reporter::resume_changes(const FoundCheckpoint& resumed,
                              const std::vector<std::string>& changes) {
  if (changes.empty()) return;
  constexpr size_t kMaxShown = 20;
  std::string text = fmt::format("from here on the run differs from the one that wrote {}:",
                                 resumed.path.string());
  for (const std::string& change : std::span(changes).first(std::min(changes.size(), kMaxShown))) {
    text += "\n  " + printable(change);
  }
  if (changes.size() > kMaxShown) {
    text += fmt::format("\n  and {} more changes", changes.size() - kMaxShown);
  }
  alert(text);
}

void Reporter::profile_table(const std::string& table) { note("\n" + table); }

void Reporter::open_metrics(const std::optional<FoundCheckpoint>& resumed) {
  const MetricsConfig& metrics = config_.metrics();
  const int64_t keep_through_step = resumed ? resumed->state.step : 0;
  if (resumed) {
    best_ = best_evaluation(config_, folder_.metrics(), keep_through_step);
    if (resumed->state.best) restore_best(*resumed->state.best);
  }
  hub_.add(std::make_unique<JsonlSink>(folder_.metrics(), keep_through_step));
  if (metrics.csv()) hub_.add(std::make_unique<CsvSink>(folder_.path, keep_through_step));
  if (metrics.tensorboard()) {
    hub_.add(std::make_unique<TensorBoardSink>(folder_.tensorboard(), keep_through_step));
  }
  if (metrics.port() > 0) {
    hub_.add(std::make_unique<PrometheusSink>(metrics.address(), metrics.port(), hub_.dropped()));
  }
}

// The records lack the best evaluation if it was made in another run, of which this one resumed a
// checkpoint. Of such an evaluation only the value that made it the best is known.
void Reporter::restore_best(const BestEvaluation& saved) {
  const double score = signed_score(saved.metric, saved.value);
  if (best_ && (best_->step == saved.step || score <= score_of(saved.metric, best_->metrics))) {
    return;
  }
  best_ = EvalPoint{.step = saved.step};
  for (const MetricInfo& metric : kEvaluationMetrics) {
    if (saved.metric == metric.name) best_->metrics.*metric.value = saved.value;
  }
}

void Reporter::start(const RunInfo& info, const std::optional<FoundCheckpoint>& resumed) {
  device_ = info.device;
  tokens_per_sample_ = info.tokens_per_sample;
  work_ = info.work;
  best_metric_ = best_metric(config_, info.predictions);
  resume_ = info.resume;
  progress_ = make_progress(config_.train().epochs(), info.total_steps);
  for (const std::string& line :
       opening_lines(config_, communicator_.size(), folder_, info, resumed)) {
    note(line);
  }
  samples_skipped(info.bad_records.count, info.bad_records.first);
  logged_bad_records_ = bad_records_;
  if (is_rank_0()) write_start(info, resumed);
}

void Reporter::write_start(const RunInfo& info, const std::optional<FoundCheckpoint>& resumed) {
  StartRecord record;
  record.step = resumed ? resumed->state.step : 0;
  record.epoch = resumed ? resumed->state.epoch : 0;
  record.position = resumed ? resumed->state.position : 0;
  record.version = version();
  record.model = model_name(config_);
  record.parameters = info.parameters;
  record.ranks = communicator_.size();
  record.precision = Precision_Name(config_.train().precision());
  record.global_batch = config_.batch().global();
  record.samples_per_epoch = info.samples_per_epoch;
  record.steps_per_epoch = info.steps_per_epoch;
  record.total_steps = info.total_steps;
  record.tokens_per_sample = info.tokens_per_sample;
  record.bad_records = bad_records_;
  if (resumed) record.resumed_from = resumed->path.string();
  record.run_dir = folder_.path.string();
  record.config = to_text(config_);
  record.hyperparameters = hyperparameters(config_);
  record.predictions = info.predictions;
  hub_.write(std::move(record), When::kNow);
}

void Reporter::restart_step_time() { last_step_at_ = Clock::now(); }

void Reporter::step(int64_t step, const LaunchedStep& launched, const StepResult& result,
                    std::optional<uint64_t> checksum) {
  const auto now = Clock::now();
  const double took = to_seconds(now - last_step_at_);
  last_step_at_ = now;
  if (totals_.steps == 0) seconds_to_first_step_ = seconds_since_start();
  const int64_t tokens = launched.batch.global_rows * tokens_per_sample_;
  ++totals_.steps;
  totals_.samples += launched.batch.global_rows;
  totals_.tokens += tokens;
  totals_.seconds += took;
  totals_.data_wait += launched.data_wait;
  totals_.timings = sum_of(totals_.timings, result.timings);
  if (work_) totals_.work = totals_.work + work_->of(launched.batch);
  warn_of_sink_problems();
  if (!is_rank_0()) return;
  progress_->step(
      {.step = step,
       .epoch = launched.batch.epoch,
       .samples = launched.batch.global_rows,
       .tokens = tokens,
       .loss = mean_loss(result),
       .seconds = took,
       .data_wait = launched.data_wait,
       .exposed_comm = result.timings.exposed,
       .idle = config_.parallel().stages() > 1 ? std::optional(result.timings.idle) : std::nullopt,
       .load = device_load(now)},
      now);
  if (checksum || step % config_.train().log_every_steps() == 0) {
    record(step, launched, result, checksum);
  }
  report_rank_lags(step, now, /*end=*/false);
}

void Reporter::report_rank_lags(int64_t step, Clock::time_point now, bool end) {
  if (!end && !lags_.due(now)) return;
  if (auto times = lags_.update(communicator_.ledger().paces(), now, end)) {
    hub_.write(RanksRecord{step, std::move(times->lag_ms), by_stage(times->utilization)});
  }
}

// Returns the means over the replicas of each pipeline stage; empty if there is one stage.
std::vector<double> Reporter::by_stage(const std::vector<double>& by_rank) const {
  const int ranks = communicator_.size();
  const Grid grid = grid_of(config_, 0, ranks);
  if (!grid.has_pipeline()) return {};
  std::vector<double> means(static_cast<size_t>(grid.stages));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto stage = static_cast<size_t>(grid_of(config_, rank, ranks).stage);
    means[stage] += by_rank[static_cast<size_t>(rank)] / grid.replicas;
  }
  return means;
}

// Writes a step record. Times are means over the steps since the last record.
void Reporter::record(int64_t step, const LaunchedStep& launched, const StepResult& result,
                      std::optional<uint64_t> checksum) {
  const auto steps = static_cast<double>(totals_.steps - logged_.steps);
  const double span = totals_.seconds - logged_.seconds;
  StepRecord record;
  record.step = step;
  record.epoch = launched.batch.epoch;
  record.train_loss = mean_loss(result);
  record.learning_rate = launched.learning_rate;
  record.samples_per_second = static_cast<double>(totals_.samples - logged_.samples) / span;
  if (tokens_per_sample_ > 0) {
    record.tokens_per_second = static_cast<double>(totals_.tokens - logged_.tokens) / span;
  }
  const StepWork::Amount work = totals_.work - logged_.work;
  record.model_flops_utilization = work.utilization(span);
  record.padding_share = work.padding_share();
  record.step_ms = 1e3 * span / steps;
  record.data_wait_ms = 1e3 * (totals_.data_wait - logged_.data_wait) / steps;
  const StepTimings timings = sum_of(totals_.timings, logged_.timings, -1);
  record.exposed_comm_ms = 1e3 * timings.exposed / steps;
  record.forward_ms = 1e3 * timings.forward / steps;
  record.backward_ms = 1e3 * timings.backward / steps;
  record.update_ms = 1e3 * timings.update / steps;
  record.comm_ms = 1e3 * timings.communication / steps;
  if (config_.parallel().stages() > 1) record.idle_ms = 1e3 * timings.idle / steps;
  record.samples_total = totals_.samples;
  record.parameter_checksum = checksum;
  if (result.loss_scale) record.loss_scale = result.loss_scale->scale;
  record.skipped_steps = result.skipped_steps;
  if (bad_records_ > std::exchange(logged_bad_records_, bad_records_)) {
    record.bad_records = bad_records_;
  }
  record.load = std::exchange(load_, std::nullopt);
  hub_.write(std::move(record));
  logged_ = totals_;
}

std::optional<DeviceLoad> Reporter::device_load(Clock::time_point now) {
  if (now - load_read_at_ < std::chrono::seconds(1)) return std::nullopt;
  load_read_at_ = now;
  load_ = device_->load();
  return load_;
}

void Reporter::warn_of_step(std::string text, int64_t& count) {
  ++count;
  if (count > kWarnings && !std::has_single_bit(static_cast<uint64_t>(count))) return;
  if (count > kWarnings) text += fmt::format("; so far {} steps", count);
  if (count == kWarnings) text += "; not every further one is reported";
  warn(text);
}

void Reporter::not_finite(int64_t step, int64_t epoch, const std::string& what) {
  warn_of_step(what + "; all ranks skipped the step", not_finite_steps_);
  if (is_rank_0()) hub_.write(NotFiniteRecord{step, epoch, what}, When::kNow);
}

void Reporter::samples_skipped(int64_t samples, const std::vector<std::string>& reasons) {
  bad_records_ += samples;
  for (const std::string& reason : reasons) warn("skipped: " + reason);
}

void Reporter::loss_spike(int64_t step, int64_t epoch, double loss,
                          const LossSpikes::Spike& spike) {
  warn_of_step(
      fmt::format("step {}: the loss is {:.4g}, {:.1f} standard deviations above the mean of the "
                  "last {} steps, {:.4g}",
                  step, loss, spike.stddevs, LossSpikes::kWindow, spike.mean),
      loss_spikes_);
  if (is_rank_0()) hub_.write(LossSpikeRecord{step, epoch, loss, spike.mean, spike.stddevs});
}

void Reporter::evaluated(const CheckpointState& state, const Evaluation& evaluation) {
  // Every evaluation skips the same samples: report them once.
  if (!evaluation_) samples_skipped(evaluation.bad.count, evaluation.bad.first);
  evaluation_ = evaluation;
  evaluated_step_ = state.step;
  const std::optional<double> loss = evaluation.metrics.loss;
  if (!(loss && std::isfinite(*loss)) && !std::exchange(warned_of_evaluation_, true)) {
    warn(loss ? fmt::format("the loss of the evaluation after step {} is {}: some of the network's "
                            "outputs are not finite numbers{}",
                            state.step, non_finite_name(*loss),
                            evaluation.metrics.accuracy
                                ? "; trireme eval RUN --details names the samples"
                                : "")
              : fmt::format("the evaluation after step {} has measured nothing: no label counts "
                            "(-100 and ignore_index do not)",
                            state.step));
  }
  if (!is_rank_0()) return;
  const auto score = score_of(best_metric_, evaluation.metrics);
  if (score && (!best_ || score > score_of(best_metric_, best_->metrics))) {
    best_ = EvalPoint{.step = state.step, .epoch = state.epoch, .metrics = evaluation.metrics};
  }
  EvaluationRecord record;
  record.step = state.step;
  record.epoch = state.epoch;
  record.samples = evaluation.samples;
  record.metrics = evaluation.metrics;
  record.classes = evaluation.classes;
  record.bad_records = evaluation.bad.count;
  record.seconds = evaluation.seconds;
  hub_.write(std::move(record), When::kNow);
  if (state.position == 0) {
    unshown_ = evaluation;
  } else {
    progress_->evaluated(state.step, evaluation);
  }
}

void Reporter::epoch_done(const CheckpointState& state) {
  progress_->epoch_done(state.epoch, mean_loss(state), unshown_);
  unshown_.reset();
}

void Reporter::samples(SamplesRecord record) { hub_.write(std::move(record), When::kNow); }

void Reporter::histograms(HistogramsRecord record) { histograms_ = hub_.write(std::move(record)); }

std::function<void()> Reporter::before_checkpoint() {
  return [pending = hub_.flush(JsonlSink::kName), timed_out = records_timed_out_] {
    if (!pending.wait(*timed_out ? MetricsHub::Seconds(0) : kCheckpointTimeout)) *timed_out = true;
  };
}

void Reporter::saved(const SaveOutcome& outcome) {
  hub_.write(LogLine{fmt::format("saved {} in {}, for which training paused for {}",
                                 outcome.path.string(), format_duration(outcome.seconds),
                                 format_duration(outcome.stall_seconds))});
  CheckpointRecord record;
  record.step = outcome.state.step;
  record.epoch = outcome.state.epoch;
  record.path = outcome.path.string();
  record.best = outcome.state.is_best();
  record.seconds = outcome.seconds;
  record.stall_seconds = outcome.stall_seconds;
  hub_.write(std::move(record), When::kNow);
}

void Reporter::checkpoint_skipped(int64_t step, int64_t writing, double seconds) {
  ++skipped_checkpoints_;
  // Fast saves that are merely due too often are only counted in the closing lines.
  if (seconds < kSlowSave || std::exchange(blocking_save_, writing) == writing) return;
  warn(fmt::format("no checkpoint at step {}: the one of step {} is still being written after {}",
                   step, writing, format_duration(seconds)));
}

void Reporter::already_complete(const CheckpointState& state, const std::string& why_early) {
  note(complete_line(folder_, state, why_early));
}

Summary Reporter::summary_of(const CheckpointState& state, const Ending& ending) {
  const auto fraction = [&](double part) {
    return totals_.seconds > 0 ? part / totals_.seconds : 0;
  };
  Summary summary;
  summary.status = ending.status;
  summary.ended_by = ending.ended_by;
  summary.reason = ending.reason;
  summary.ranks = communicator_.size();
  summary.precision = Precision_Name(config_.train().precision());
  summary.epochs = state.epoch;
  summary.steps = state.step;
  if (state.loss_scale) summary.skipped_steps = state.loss_scale->skipped;
  summary.samples_per_second = fraction(static_cast<double>(totals_.samples));
  if (tokens_per_sample_ > 0) {
    summary.tokens_per_second = fraction(static_cast<double>(totals_.tokens));
  }
  summary.model_flops_utilization = totals_.work.utilization(totals_.seconds);
  summary.padding_share = totals_.work.padding_share();
  summary.wall_seconds = seconds_since(started_);
  summary.train_loss = mean_loss(state);
  if (evaluation_) {
    summary.eval_step = evaluated_step_;
    summary.eval = evaluation_->metrics;
  }
  if (best_) {
    summary.best_step = best_->step;
    summary.best = best_->metrics;
    summary.best_metric = best_metric_;
  }
  summary.data_wait_fraction = fraction(totals_.data_wait);
  summary.exposed_comm_fraction = fraction(totals_.timings.exposed);
  summary.seconds_to_first_step = seconds_to_first_step_;
  summary.bad_records = bad_records_;
  summary.skipped_checkpoints = skipped_checkpoints_;
  for (const std::string& peak : all_gather(communicator_, std::to_string(peak_resident_bytes()))) {
    summary.peak_memory_bytes = std::max<int64_t>(summary.peak_memory_bytes, std::stoll(peak));
  }
  return summary;
}

// A failure is only a warning: the final state is saved.
void Reporter::write_results(const Summary& summary, const std::vector<std::string>& output_names) {
  const auto try_to = [&](const auto& write) {
    try {
      write();
    } catch (const Error& error) {
      warn(error.what());
    }
  };
  if (detailed_) {
    try_to([&] {
      write_evaluation(folder_.evaluation(), detailed_->evaluation, detailed_->step,
                       detailed_->epoch, output_names);
    });
  }
  try_to([&] { write_summary(folder_.summary(), summary); });
}

Summary Reporter::end(const CheckpointState& state, const Ending& ending,
                      const std::vector<std::string>& output_names) {
  const Summary summary = summary_of(state, ending);
  progress_->finish();
  if (is_rank_0()) {
    report_rank_lags(state.step, Clock::now(), /*end=*/true);
    hub_.write(EndRecord{state.step, state.epoch, ending.status, ending.ended_by, ending.reason},
               When::kNow);
    write_results(summary, output_names);
  }
  hub_.drain(kEndTimeout);
  warn_of_sink_problems();
  for (const std::string& line : closing_lines(summary, best_checkpoint_)) note(line);
  for (const std::string& line : dropped_lines(hub_.dropped()->get())) note(line);
  if (ending.status == "stopped") note(stopped_line(folder_, resume_));
  return summary;
}

}  // namespace trireme::train
