#include "trainer/run/early_stopping.h"

#include <fmt/format.h>

#include "comm/control.h"
#include "trainer/config/monitor.h"

namespace trireme::train {
namespace {

const std::string kUnmeasured = "unmeasured";

}  // namespace

EarlyStopping::EarlyStopping(const TrainConfig& config, comm::Communicator& communicator,
                             CheckpointState& state)
    : config_(config.early_stopping()), communicator_(communicator), state_(state) {
  if (!config.has_early_stopping()) {
    state_.stopping.reset();
  } else if (!state_.stopping || state_.stopping->metric != config_.monitor()) {
    state_.stopping.emplace();
    state_.stopping->metric = config_.monitor();
  }
}

void EarlyStopping::count(const Evaluation& evaluation) {
  if (!configured() || state_.stopping->counted_at == state_.step) return;
  EarlyStoppingState& stopping = *state_.stopping;
  stopping.counted_at = state_.step;
  // Rank 0 decides, since sums may differ between ranks in the last digit.
  const auto value = value_of(stopping.metric, evaluation.metrics);
  const auto score = score_of(stopping.metric, evaluation.metrics);
  const bool improves =
      score && (!stopping.best ||
                *score - config_.min_delta() > signed_score(stopping.metric, *stopping.best));
  const std::string best = broadcast(communicator_,
                                     !value     ? kUnmeasured
                                     : improves ? fmt::format("{}", *value)
                                                : "",
                                     0);
  if (best == kUnmeasured) {
    throw comm::AgreedError(
        fmt::format("train.early_stopping.monitor: the evaluation after step {} has no '{}', which "
                    "is undefined for its samples; choose another metric",
                    state_.step, stopping.metric),
        ExitCode::kBadConfig, 0);
  }
  ++stopping.waited;
  if (best.empty()) return;
  stopping.waited = 0;
  stopping.best = std::stod(best);
  stopping.best_step = state_.step;
}

bool EarlyStopping::should_stop() const {
  return configured() && state_.stopping->waited >= config_.patience();
}

std::string EarlyStopping::reason() const {
  const EarlyStoppingState& stopping = *state_.stopping;
  if (!stopping.best) {
    return fmt::format("{} has not been a finite number in {} evaluations", stopping.metric,
                       stopping.waited);
  }
  const bool lowest = signed_score(stopping.metric, 1) < 0;
  const double threshold = *stopping.best + (lowest ? -1 : 1) * config_.min_delta();
  return fmt::format("{} has not been {} {:.6g} in {} evaluations since step {}", stopping.metric,
                     lowest ? "below" : "above", threshold, stopping.waited, stopping.best_step);
}

}  // namespace trireme::train
