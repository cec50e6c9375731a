#include "trainer/reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/control.h"
#include "core/text.h"
#include "trainer/file.h"
#include "trainer/process.h"

namespace trireme {
namespace {

using nlohmann::ordered_json;

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

constexpr double kSlowSave = 1;  // seconds; what takes longer is worth a warning

std::string plural(int64_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

float mean_loss(const StepResult& result) {
  return result.metrics[kMetricLoss] / result.metrics[kMetricSamples];
}

}  // namespace

Reporter::Reporter(const Config& config, Communicator& communicator, const RunFolder& folder,
                   bool quiet)
    : config_(config),
      communicator_(communicator),
      folder_(folder),
      quiet_(quiet || communicator.rank() != 0),
      log_(folder.log(communicator.rank())),
      progress_(std::make_unique<Progress>(progress_options(quiet_), 0, 0, true)),
      started_(Clock::now()) {
  if (!log_.writes())
    warn(fmt::format("{}: cannot be written", folder.log(communicator.rank()).string()));
}

void Reporter::note(const std::string& text) {
  progress_->note(text);
  log_.line(text);
}

void Reporter::warn(const std::string& text) { note("warning: " + text); }

void Reporter::open_metrics(int64_t keep_through_step) {
  metrics_ = std::make_unique<MetricsFile>(folder_.metrics(), keep_through_step,
                                           [this](const std::string& text) { warn(text); });
}

void Reporter::start(const RunFacts& facts, const std::optional<FoundCheckpoint>& resumed) {
  const RunConfig& run = config_.run;
  const int ranks = communicator_.size();
  classifies_ = facts.classifies;
  progress_ = std::make_unique<Progress>(progress_options(quiet_), run.train().epochs(),
                                         facts.total_steps, facts.classifies);
  note(fmt::format("{}: {} parameters, {}, {}", model_name(run),
                   format_count(static_cast<double>(facts.parameters)),
                   Precision_Name(run.train().precision()), plural(ranks, "rank")));
  device_ = facts.device;
  note("device: " + device_->description());
  note("train:  " + facts.training_data);
  note("eval:   " + facts.evaluation_data);
  note(fmt::format("batch {} over all ranks, {} an epoch, results in {}", run.batch().global(),
                   plural(facts.steps_per_epoch, "step"), folder_.path.string()));
  if (resumed) {
    note(fmt::format("resumed from {} (step {}, {} samples into epoch {})", resumed->path.string(),
                     resumed->state.step, resumed->state.position, resumed->state.epoch + 1));
  }
  left_out(facts.bad_records.count, facts.bad_records.first);
  logged_bad_records_ = bad_records_;
  if (!metrics_) return;
  ordered_json event = {{"event", "start"},
                        {"step", resumed ? resumed->state.step : 0},
                        {"epoch", resumed ? resumed->state.epoch : 0},
                        {"version", TRIREME_VERSION},
                        {"model", model_name(run)},
                        {"parameters", facts.parameters},
                        {"ranks", ranks},
                        {"precision", Precision_Name(run.train().precision())},
                        {"batch_global", run.batch().global()},
                        {"steps_per_epoch", facts.steps_per_epoch},
                        {"total_steps", facts.total_steps},
                        {"bad_records", bad_records_}};
  if (resumed) event["resumed_from"] = resumed->path.string();
  metrics_->write(event.dump());
  metrics_->flush();
}

void Reporter::begin_steps() { mark_ = Clock::now(); }

void Reporter::step(int64_t step, const LaunchedStep& launched, const StepResult& result,
                    std::optional<uint64_t> checksum) {
  const auto now = Clock::now();
  const double took = seconds(now - mark_);
  mark_ = now;
  if (totals_.steps == 0) seconds_to_first_step_ = seconds_since_start();
  const double exposed = result.timings.exposed;
  ++totals_.steps;
  totals_.samples += launched.batch.global_rows;
  totals_.seconds += took;
  totals_.data_wait += launched.data_wait;
  totals_.exposed_comm += exposed;
  if (!metrics_) return;
  progress_->step({.step = step,
                   .epoch = launched.batch.epoch,
                   .samples = launched.batch.global_rows,
                   .loss = mean_loss(result),
                   .seconds = took,
                   .data_wait = launched.data_wait,
                   .exposed_comm = exposed,
                   .load = device_load(now)},
                  now);
  if (checksum || step % config_.run.train().log_every_steps() == 0) {
    record(step, launched, result, checksum);
  }
}

// Times are means over the steps since the last record.
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
  record.step_ms = 1e3 * span / steps;
  record.data_wait_ms = 1e3 * (totals_.data_wait - logged_.data_wait) / steps;
  record.exposed_comm_ms = 1e3 * (totals_.exposed_comm - logged_.exposed_comm) / steps;
  record.parameter_checksum = checksum;
  if (result.loss_scale) record.loss_scale = result.loss_scale->scale;
  record.skipped_steps = result.skipped_steps;
  if (bad_records_ > std::exchange(logged_bad_records_, bad_records_)) {
    record.bad_records = bad_records_;
  }
  record.load = std::exchange(load_, std::nullopt);
  metrics_->write(record);
  logged_ = totals_;
}

std::optional<DeviceLoad> Reporter::device_load(Clock::time_point now) {
  if (now - load_asked_ < std::chrono::seconds(1)) return std::nullopt;
  load_asked_ = now;
  load_ = device_->load();
  return load_;
}

void Reporter::not_finite(int64_t step, int64_t epoch, const std::string& what) {
  warn(what + "; all ranks left the step out");
  if (!metrics_) return;
  const ordered_json event = {
      {"event", "not_finite"}, {"step", step}, {"epoch", epoch}, {"what", what}};
  metrics_->write(event.dump());
  metrics_->flush();
}

void Reporter::left_out(int64_t samples, const std::vector<std::string>& reasons) {
  bad_records_ += samples;
  for (const std::string& reason : reasons) warn("left out: " + reason);
}

void Reporter::loss_spike(int64_t step, int64_t epoch, double loss,
                          const LossSpikes::Spike& spike) {
  warn(
      fmt::format("step {}: the loss is {:.4g}, {:.1f} deviations above the {:.4g} of the {} "
                  "steps before",
                  step, loss, spike.deviations, spike.mean, LossSpikes::kWindow));
  if (!metrics_) return;
  const ordered_json event = {{"event", "loss_spike"},
                              {"step", step},
                              {"epoch", epoch},
                              {"train_loss", loss},
                              {"mean_before", spike.mean},
                              {"deviations", spike.deviations}};
  metrics_->write(event.dump());
}

void Reporter::evaluated(const CheckpointState& state, const Evaluation& evaluation) {
  if (!evaluation_) left_out(evaluation.bad.count, evaluation.bad.first);  // each time the same
  evaluation_ = evaluation;
  if (!metrics_) return;
  ordered_json event = {{"event", "eval"},
                        {"step", state.step},
                        {"epoch", state.epoch},
                        {"samples", evaluation.samples},
                        {"eval_loss", evaluation.loss}};
  if (classifies_) {
    event["eval_accuracy"] = evaluation.accuracy;
    event["eval_top5"] = evaluation.top5;
  }
  if (evaluation.bad.count > 0) event["bad_records"] = evaluation.bad.count;
  event["seconds"] = evaluation.seconds;
  metrics_->write(event.dump());
  if (state.position == 0) {
    unshown_ = evaluation;
  } else {
    progress_->evaluated(state.step, evaluation);
  }
}

void Reporter::epoch_done(const CheckpointState& state) {
  progress_->epoch_done(
      state.epoch,
      state.epoch_loss_sum / static_cast<double>(std::max<int64_t>(1, state.epoch_samples)),
      unshown_);
  unshown_.reset();
}

void Reporter::saving() {
  if (metrics_) metrics_->flush();
}

void Reporter::saved(const SaveOutcome& outcome) {
  log_.line(fmt::format("saved {} in {}, of which training stood still for {}",
                        outcome.path.string(), format_duration(outcome.seconds),
                        format_duration(outcome.stall_seconds)));
  const ordered_json event = {{"event", "checkpoint"},
                              {"step", outcome.state.step},
                              {"epoch", outcome.state.epoch},
                              {"path", outcome.path.string()},
                              {"best", outcome.best},
                              {"seconds", outcome.seconds},
                              {"stall_seconds", outcome.stall_seconds}};
  metrics_->write(event.dump());
  metrics_->flush();
}

void Reporter::save_left_out(int64_t step, int64_t writing, double so_far) {
  ++saves_left_out_;
  // That saves come due faster than a disk can sync is told at the end.
  if (so_far < kSlowSave || std::exchange(blocking_save_, writing) == writing) return;
  warn(fmt::format("no checkpoint at step {}: that of step {} is still being written after {}",
                   step, writing, format_duration(so_far)));
}

void Reporter::nothing_left(const CheckpointState& state) {
  note(fmt::format(
      "{} is complete: {}, {}; raise train.epochs or train.max_steps to go on, or choose "
      "another --run-dir",
      folder_.path.string(), plural(state.epoch, "epoch"), plural(state.step, "step")));
}

Summary Reporter::end(const CheckpointState& state, const std::string& status) {
  const auto fraction = [&](double part) {
    return totals_.seconds > 0 ? part / totals_.seconds : 0;
  };
  Summary summary;
  summary.status = status;
  summary.ranks = communicator_.size();
  summary.precision = Precision_Name(config_.run.train().precision());
  summary.epochs = state.epoch;
  summary.steps = state.step;
  summary.samples_per_second = fraction(static_cast<double>(totals_.samples));
  summary.wall_seconds = seconds(Clock::now() - started_);
  summary.train_loss =
      state.epoch_loss_sum / static_cast<double>(std::max<int64_t>(1, state.epoch_samples));
  if (evaluation_) {
    summary.eval_loss = evaluation_->loss;
    if (classifies_) summary.eval_accuracy = evaluation_->accuracy;
    if (classifies_) summary.eval_top5 = evaluation_->top5;
  }
  summary.data_wait_fraction = fraction(totals_.data_wait);
  summary.exposed_comm_fraction = fraction(totals_.exposed_comm);
  summary.seconds_to_first_step = seconds_to_first_step_;
  summary.bad_records = bad_records_;
  summary.saves_left_out = saves_left_out_;
  for (const std::string& peak : all_gather(communicator_, std::to_string(peak_resident_bytes()))) {
    summary.peak_memory_bytes = std::max<int64_t>(summary.peak_memory_bytes, std::stoll(peak));
  }
  progress_->finish();
  if (metrics_) {
    const ordered_json event = {
        {"event", "end"}, {"step", state.step}, {"epoch", state.epoch}, {"status", status}};
    metrics_->write(event.dump());
    metrics_->flush();
    try {
      write_summary(folder_.summary(), summary);
    } catch (const Error& error) {
      warn(error.what());
    }
  }
  closing_lines(summary);
  return summary;
}

void Reporter::closing_lines(const Summary& summary) {
  note(
      fmt::format("{}: {}, {} in {}, {} samples/s, data wait {:.1f}%, exposed comm {:.1f}%, peak "
                  "memory {} a rank",
                  summary.status, plural(summary.epochs, "epoch"), plural(summary.steps, "step"),
                  format_duration(summary.wall_seconds), format_count(summary.samples_per_second),
                  100 * summary.data_wait_fraction, 100 * summary.exposed_comm_fraction,
                  format_bytes(static_cast<double>(summary.peak_memory_bytes))));
  if (summary.bad_records > 0) {
    note(fmt::format("data: {} left out (data.on_bad_record: SKIP)",
                     plural(summary.bad_records, "bad record")));
  }
  if (summary.eval_loss) {
    note(summary.eval_accuracy
             ? fmt::format("eval: accuracy {:.2f}%, top-5 {:.2f}%, loss {:.4f}",
                           100 * *summary.eval_accuracy, 100 * summary.eval_top5.value_or(0),
                           *summary.eval_loss)
             : fmt::format("eval: loss {:.4f}", *summary.eval_loss));
  }
  if (summary.saves_left_out > 0) {
    note(fmt::format("{} left out: due while the one before was still being written",
                     plural(summary.saves_left_out, "checkpoint")));
  }
  if (summary.status == "stopped") {
    note("stopped by a signal and saved; the same command goes on from here with --run-dir " +
         folder_.path.string());
  }
}

}  // namespace trireme
