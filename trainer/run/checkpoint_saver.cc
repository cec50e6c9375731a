#include "trainer/run/checkpoint_saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "comm/control.h"
#include "core/error.h"
#include "trainer/config/monitor.h"

namespace trireme::train {

CheckpointSaver::CheckpointSaver(const RunConfig& config, comm::Communicator& communicator,
                                 Reporter& reporter, CheckpointState& state,
                                 const StateArrays& arrays, const Predictions& predictions)
    : config_(config),
      communicator_(communicator),
      reporter_(reporter),
      state_(state),
      arrays_(arrays),
      metric_(best_metric(config, predictions)) {}

void CheckpointSaver::open(Checkpoints checkpoints,
                           const std::optional<std::filesystem::path>& newest) {
  writer_ = std::make_unique<CheckpointWriter>(std::move(checkpoints), arrays_,
                                               config_.checkpoint().timeout_seconds());
  if (!newest) return;
  saved_at_ = state_.step;
  newest_ = *newest;
}

bool CheckpointSaver::is_better(const Evaluation& result) const {
  std::optional<double> best;
  if (state_.best) best = signed_score(metric_, state_.best->value);
  return score_of(metric_, result.metrics) > best;
}

void CheckpointSaver::update_best(const Evaluation& result) {
  if (!config_.checkpoint().keep_best()) return;
  if (broadcast(communicator_, is_better(result) ? "yes" : "", 0) != "yes") return;
  best_at_ = state_.step;
  best_ = result;
}

void CheckpointSaver::save(bool wait) {
  if (!decided_on_rank_0(writer_ && can_start())) return;
  start();
  if (wait && writer_) handle_outcome(writer_->wait());
}

// Returns rank 0's argument on all ranks that have a part in a save.
bool CheckpointSaver::decided_on_rank_0(bool starts) const {
  if (!arrays_.is_distributed()) return starts;
  return broadcast(communicator_, starts ? "yes" : "", 0) == "yes";
}

// Returns whether no other save is in progress; reports it if there is one.
bool CheckpointSaver::can_start() {
  // A best state is lost if its save is skipped, so wait for the save in progress: as long as the
  // evaluation took or, if the run will end with its best state, up to the timeout of saves.
  if (is_best()) {
    const bool ends_with_it = config_.train().has_early_stopping();
    writer_->wait_up_to(ends_with_it ? config_.checkpoint().timeout_seconds()
                                     : std::max(1.0, best_.seconds));
  }
  poll();
  const auto writing = writer_->writing();
  if (writing) reporter_.checkpoint_skipped(state_.step, *writing, writer_->seconds());
  return !writing;
}

void CheckpointSaver::start() {
  if (!writer_) return arrays_.send_parts();
  CheckpointState state = state_;
  state.config = to_text(config_);
  state.config_hash = config_hash(config_);
  state.seed = config_.seed();
  state.ranks = communicator_.size();
  // A save that has ended since the evaluation may have been of a better state.
  if (is_best() && is_better(best_)) {
    state.best = {metric_, *value_of(metric_, best_.metrics), state.step};
  }
  writer_->start(state, reporter_.before_checkpoint());
}

void CheckpointSaver::poll() {
  if (!writer_) return;
  if (const auto outcome = writer_->poll()) handle_outcome(*outcome);
}

// Handles the outcome of a save during training.
void CheckpointSaver::handle_outcome(const SaveOutcome& outcome) {
  if (record_success(outcome)) return;
  const bool stops = config_.checkpoint().on_error() == CheckpointConfig::STOP;
  if (stops) failure_ = describe_failure(outcome);
  warn_of_failure(outcome, stops ? "" : "; training continues");
}

// Warns once of each cause until a save succeeds: if the disk is full, all saves fail.
void CheckpointSaver::warn_of_failure(const SaveOutcome& outcome, const std::string& consequence) {
  ++failed_saves_;
  const size_t colon = outcome.error.rfind(": ");  // after the path and what failed
  const std::string cause =
      colon == std::string::npos ? outcome.error : outcome.error.substr(colon);
  if (!causes_.insert(cause).second) return;
  reporter_.warn(describe_failure(outcome) + consequence);
}

// Returns whether the save succeeded, and reports it if it did.
bool CheckpointSaver::record_success(const SaveOutcome& outcome) {
  if (!outcome.error.empty()) return false;
  saved_at_ = outcome.state.step;
  newest_ = outcome.path;
  if (!outcome.problem.empty() && std::exchange(problem_, outcome.problem) != outcome.problem) {
    reporter_.warn(fmt::format("{} is saved, but {}", outcome.path.string(), outcome.problem));
  }
  if (outcome.state.is_best()) state_.best = outcome.state.best;
  if (failed_saves_ > 1) {
    reporter_.warn(fmt::format("{} is saved; {} saves since the one before it have failed",
                               outcome.path.string(), failed_saves_));
  }
  failed_saves_ = 0;
  causes_.clear();
  reporter_.saved(outcome);
  return true;
}

std::string CheckpointSaver::describe_failure(const SaveOutcome& outcome) const {
  return fmt::format(
      "no checkpoint at step {}: {}; {}", outcome.state.step, outcome.error,
      newest_.empty() ? "none has been saved yet" : "the newest is " + newest_.string());
}

void CheckpointSaver::save_final() {
  std::exception_ptr error;
  bool starts = false;
  try {
    starts = writer_ && final_save_is_needed();
  } catch (...) {
    error = std::current_exception();  // after the other ranks know
  }
  starts = decided_on_rank_0(starts);
  if (error) std::rethrow_exception(error);
  if (starts) {
    communicator_.ledger().enter(comm::Phase::kCheckpoint);
    start();
  }
  if (starts && writer_) {
    const SaveOutcome outcome = writer_->wait();
    if (!record_success(outcome)) throw Error(describe_failure(outcome));
  }
  if (failure_) throw Error(*failure_);
}

// Waits for a save in progress. Returns whether the current state is not saved.
bool CheckpointSaver::final_save_is_needed() {
  if (writer_->writing()) {
    const SaveOutcome outcome = writer_->wait();
    if (!record_success(outcome)) warn_of_failure(outcome, "");
    if (writer_->writing()) throw Error(describe_failure(outcome));
  }
  std::error_code none;
  return saved_at_ != state_.step || is_best() || !std::filesystem::exists(newest_, none);
}

}  // namespace trireme::train
