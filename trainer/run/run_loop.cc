#include "trainer/run/run_loop.h"

#include <fmt/format.h>

#include <utility>

#include "comm/control.h"
#include "core/fault_point.h"

namespace trireme::train {
namespace {

bool due(int64_t every, int64_t count) { return every > 0 && count % every == 0; }

}  // namespace

RunLoop::RunLoop(const LoopSettings& settings, comm::Communicator& communicator, RunStop& stop,
                 RunParts& parts)
    : settings_(settings),
      communicator_(communicator),
      stop_(stop),
      parts_(parts),
      state_(parts.state),
      step_(*parts.step),
      reporter_(*parts.reporter),
      saver_(*parts.saver),
      results_(settings.spike_stddevs, communicator, stop, parts),
      early_stopping_(settings.train, communicator, parts.state),
      averaged_at_(parts.resumed ? parts.state.step : -1) {}

bool RunLoop::finished() const {
  const TrainConfig& train = settings_.train;
  return (train.has_epochs() && state_.epoch >= train.epochs()) ||
         (train.has_max_steps() && state_.step >= train.max_steps()) ||
         early_stopping_.should_stop();
}

std::string RunLoop::why_early() const {
  return early_stopping_.should_stop() ? early_stopping_.reason() : "";
}

bool RunLoop::evaluation_is_due() const {
  const TrainConfig& train = settings_.train;
  const bool epoch_done = state_.position == 0 && state_.epoch > 0;
  return due(train.eval_every_steps(), state_.step) ||
         (epoch_done && due(train.eval_every_epochs(), state_.epoch));
}

// Returns whether this rank should stop: a signal asked it to, or a save failed.
bool RunLoop::stop_requested() const { return saver_.failed() || stop_.requested(); }

void RunLoop::run() {
  parts_.loader->start(state_.epoch, state_.position);
  if (state_.evaluation_due) evaluate();
  if (saver_.is_best() && !finished()) save();
  reporter_.restart_step_time();
  while (!stop_.stopped() && !finished()) step();
  finish_steps();
  end_profile();
  if (!stop_.stopped() && evaluated_at_ != state_.step) evaluate();
}

void RunLoop::step() {
  communicator_.ledger().enter(comm::Phase::kData, state_.step);
  fault_point("step", state_.step);
  saver_.poll();
  const data::Batch& batch = next_batch();
  if (parts_.tensorboard_media) parts_.tensorboard_media->log_samples(batch, state_.step);
  const double rate = parts_.plan->learning_rate({batch.epoch, batch.position});
  results_.launched({batch, rate, parts_.loader->wait_seconds()});
  const auto result = step_.run(batch, state_.step, static_cast<float>(rate), stop_requested());
  const bool epoch_done = batch.last_of_epoch;
  ++state_.step;
  state_.epoch = batch.epoch + (epoch_done ? 1 : 0);
  state_.position = epoch_done ? 0 : batch.position + batch.global_rows;
  if (result) results_.done(*result);
  after_step(epoch_done);
}

const data::Batch& RunLoop::next_batch() {
  Profiler* const profiler = parts_.profiler.get();
  if (!profiler) return parts_.loader->next();
  if (profiler->opens_before(state_.step + 1)) {
    profiler->open();
    reporter_.restart_step_time();
  }
  const auto asked = Profiler::Clock::now();
  const data::Batch& batch = parts_.loader->next();
  if (profiler->is_open()) profiler->fetched(state_.step + 1, asked);
  return batch;
}

void RunLoop::finish_steps() {
  if (const auto result = step_.finish()) results_.done(*result);
}

void RunLoop::after_step(bool epoch_done) {
  if (parts_.profiler && parts_.profiler->closes_after(state_.step)) {
    close_profile();
    reporter_.restart_step_time();
  }
  const CheckpointConfig& checkpoint = settings_.checkpoint;
  const bool evaluates = evaluation_is_due();
  const bool saves = due(checkpoint.every_steps(), state_.step) ||
                     (epoch_done && due(checkpoint.every_epochs(), state_.epoch));
  // These read parameters or the loss of the epoch, which requires that all launched steps are
  // done.
  const bool compares = parts_.checks->compares_after(state_.step);
  if (evaluates || saves || compares || epoch_done || finished()) finish_steps();
  if (evaluates || finished()) evaluate();
  if (epoch_done) reporter_.epoch_done(state_);
  if (epoch_done && parts_.tensorboard_media) {
    parts_.tensorboard_media->log_histograms(state_.epoch, state_.step, results_.gradient_scale());
  }
  // The final state is saved by save_final(), which throws if that fails.
  if ((saves || saver_.is_best()) && !stop_.stopped() && !finished()) save();
  if (evaluates || saves || epoch_done) reporter_.restart_step_time();
}

void RunLoop::close_profile() {
  finish_steps();
  communicator_.ledger().enter(comm::Phase::kCheckpoint);  // rank 0 waits for the disk
  const Profiler::Outcome outcome = parts_.profiler->close();
  if (!outcome.problem.empty()) reporter_.warn("profile: " + outcome.problem);
  if (!outcome.table.empty()) reporter_.profile_table(outcome.table);
}

// Ends the profile if the run has ended within the window or before it.
void RunLoop::end_profile() {
  if (!parts_.profiler) return;
  if (parts_.profiler->is_open()) close_profile();
  if (const std::string why = parts_.profiler->why_nothing(); !why.empty()) reporter_.warn(why);
}

void RunLoop::average_running_stats() {
  if (averaged_at_ == state_.step) return;
  step_.average_running_stats();
  averaged_at_ = state_.step;
}

void RunLoop::evaluate() {
  state_.evaluation_due = true;
  if (stop_.stopped()) return;  // the evaluation runs after the run has resumed
  average_running_stats();
  step_.averages_changed();
  const bool last = finished() && !ends_with_best();
  const Evaluation result = parts_.evaluator->run([this] { return stop_requested(); }, last);
  if (result.stopped) return stop_.stop();
  state_.evaluation_due = false;
  evaluated_at_ = state_.step;
  saver_.update_best(result);
  reporter_.evaluated(state_, result);
  if (evaluation_is_due()) early_stopping_.count(result);
  if (last) reporter_.evaluated_in_detail({state_.step, state_.epoch, result});
}

void RunLoop::save() {
  prepare_to_save();
  const bool lost = parts_.lock && !parts_.lock->holds();
  if (lost && !std::exchange(folder_lost_, true)) {
    reporter_.warn(lost_folder() + "; training continues");
  }
  saver_.save(settings_.wait_for_saves);
}

void RunLoop::prepare_to_save() {
  communicator_.ledger().enter(comm::Phase::kCheckpoint);
  fault_point("checkpoint", state_.step);
  average_running_stats();
  if (parts_.checks->compares()) parts_.checks->compare_ranks(state_.step, /*averaged=*/true);
}

void RunLoop::save_final() {
  prepare_to_save();
  comm::together(communicator_, [&] {
    saver_.save_final();
    if (folder_lost_ || (parts_.lock && !parts_.lock->holds())) {
      throw Error(fmt::format("{}. Step {} is saved in a new folder, {}", lost_folder(),
                              state_.step, parts_.folder.checkpoints().string()));
    }
  });
}

bool RunLoop::ends_with_best() const { return early_stopping_.configured() && !stop_.stopped(); }

void RunLoop::evaluate_result(const std::optional<BestCheckpoint>& best) {
  step_.averages_changed();
  const Evaluation result = parts_.evaluator->run([] { return false; }, /*with_details=*/true);
  if (best) reporter_.ends_with_best(*best);
  reporter_.evaluated_in_detail(
      {best ? best->step : state_.step, best ? best->epoch : state_.epoch, result});
}

Summary RunLoop::end() {
  communicator_.ledger().enter(comm::Phase::kCheckpoint);  // rank 0 waits for the disk
  return reporter_.end(state_, ending(), data::output_names(*parts_.evaluation));
}

Ending RunLoop::ending() const {
  const TrainConfig& train = settings_.train;
  if (stop_.stopped()) return {.status = "stopped", .ended_by = "signal"};
  if (early_stopping_.should_stop()) {
    return {.status = "done", .ended_by = "early_stopping", .reason = early_stopping_.reason()};
  }
  const bool epochs = train.has_epochs() && state_.epoch >= train.epochs();
  return {.status = "done", .ended_by = epochs ? "epochs" : "max_steps"};
}

std::string RunLoop::lost_folder() const {
  return fmt::format(
      "run folder {} has been removed, emptied, moved or replaced while this run wrote to it: "
      "its files, such as config.txtpb, metrics.jsonl and earlier checkpoints, may be lost",
      parts_.folder.path.string());
}

}  // namespace trireme::train
