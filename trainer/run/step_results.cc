#include "trainer/run/step_results.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "comm/control.h"
#include "trainer/step/skipped_samples.h"

namespace trireme::train {

void StepResults::done(const StepResult& result) {
  const LaunchedStep launched = launched_.front();
  launched_.pop_front();
  const int64_t step = result.step + 1;
  CheckpointState& state = parts_.state;
  if (result.timeline) parts_.profiler->done(step, *result.timeline);
  const StepTimings& timings = result.timings;
  communicator_.ledger().step_done(timings.total(), timings.communication + timings.idle,
                                   timings.idle);
  if (launched.batch.position == 0) state.epoch_loss_sum = 0, state.epoch_weight = 0;
  state.loss_scale = result.loss_scale;
  gradient_scale_ = result.gradient_scale;
  if (!result.loss_scale && result.skipped_steps > 0) {
    state.loss_scale = ops::LossScale{.skipped = result.skipped_steps};
  }
  count_skipped_samples(launched, result);
  if (const auto found = parts_.checks->check_result(result)) {
    not_finite(step, launched, *found);
  } else {
    count_loss(step, launched, result);
  }
  std::optional<uint64_t> checksum;
  if (parts_.checks->compares_after(step)) {
    checksum = parts_.checks->compare_ranks(step, /*averaged=*/false);
  }
  parts_.reporter->step(step, launched, result, checksum);
  if (result.metrics[ops::kMetricStopRequests] > 0) stop_.stop();
}

// The count follows from the step's sums, so all ranks know it and gather the reasons together.
void StepResults::count_skipped_samples(const LaunchedStep& launched, const StepResult& result) {
  const int64_t samples =
      skipped_samples(launched.batch.global_rows, result.metrics[ops::kMetricSamples]);
  bad_in_a_row_ = samples < launched.batch.global_rows ? 0 : bad_in_a_row_ + samples;
  if (launched.batch.position == 0) bad_in_epoch_ = 0;
  bad_in_epoch_ += samples;
  if (samples == 0) return;
  std::vector<std::string> reasons;
  if (reason_queries_++ < kMaxReasonQueries) {
    std::vector<std::string> own;  // all pipeline stages read the same samples
    if (parts_.step->stage().grid.stage == 0) own = parts_.loader->bad_records().first;
    const size_t reported = std::exchange(reasons_reported_, own.size());
    reasons =
        gather_skip_reasons(communicator_, {own.begin() + std::ptrdiff_t(reported), own.end()});
  }
  parts_.reporter->samples_skipped(samples, reasons);
  if (first_reason_.empty() && !reasons.empty()) first_reason_ = reasons.front();
  // The same sample may be drawn many times in an epoch: then each rank counts different ones.
  if (!parts_.order.balanced) {
    require_few_bad_samples(*parts_.training, bad_in_epoch_, parts_.loader->max_bad_records(),
                            first_reason_);
  }
  if (bad_in_a_row_ < parts_.training->size()) return;
  throw comm::AgreedError(fmt::format("{}: has no good samples: the last {} were bad and skipped",
                                      parts_.training->description(), bad_in_a_row_),
                          ExitCode::kBadData, 0);
}

void StepResults::count_loss(int64_t step, const LaunchedStep& launched, const StepResult& result) {
  const double sum = double{result.metrics[ops::kMetricLoss]};
  const double weight{result.metrics[ops::kMetricWeight]};
  if (!(weight > 0)) return;
  parts_.state.epoch_loss_sum += sum;
  parts_.state.epoch_weight += weight;
  const double mean = sum / weight;
  if (const auto spike = loss_spikes_.add(mean)) {
    parts_.reporter->loss_spike(step, launched.batch.epoch, mean, *spike);
  }
}

// Reports a step that all ranks skipped, and ends the run if the checks say so.
void StepResults::not_finite(int64_t step, const LaunchedStep& launched,
                             const Checks::NotFinite& found) {
  parts_.reporter->not_finite(step, launched.batch.epoch, found.what);
  if (!found.ends_run) return;
  throw comm::AgreedError(found.what +
                              "; all ranks skipped the step, and the run ends. If it happens again "
                              "after resuming from the newest checkpoint, try a lower "
                              "schedule.learning_rate, schedule.warmup or train.clip_norm",
                          ExitCode::kFailure, 0);
}

}  // namespace trireme::train
