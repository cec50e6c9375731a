#include "trainer/run/run_messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/text.h"
#include "trainer/base/json.h"
#include "trainer/config/class_weights.h"
#include "trainer/config/grid.h"
#include "trainer/report/progress.h"

namespace trireme::train {
namespace {

std::string plural(int64_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

// "11.2M parameters (5.1k trained, the others frozen)"
std::string parameters_text(const RunInfo& info) {
  std::string text = format_count(static_cast<double>(info.parameters)) + " parameters";
  if (info.trained_parameters < info.parameters) {
    text += fmt::format(" ({} trained, the others frozen)",
                        format_count(static_cast<double>(info.trained_parameters)));
  }
  return text;
}

std::string weights_text(const std::vector<float>& weights) {
  constexpr size_t kListed = 10;
  if (weights.size() <= kListed) return fmt::format("{:.4g}", fmt::join(weights, ", "));
  const auto [min, max] = std::ranges::minmax(weights);
  return fmt::format("{:.4g} to {:.4g}", min, max);
}

}  // namespace

std::vector<std::string> opening_lines(const RunConfig& run, int ranks, const RunFolder& folder,
                                       const RunInfo& info,
                                       const std::optional<FoundCheckpoint>& resumed) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}: {}, {}, {}", model_name(run), parameters_text(info),
                              Precision_Name(run.train().precision()), plural(ranks, "rank")));
  if (!info.initial.empty()) lines.push_back("init: " + info.initial);
  lines.push_back("device: " + info.device->description());
  lines.push_back("train:  " + info.training_data);
  lines.push_back("eval:   " + info.evaluation_data);
  if (!info.padding.empty()) lines.push_back("batches: " + info.padding);
  const std::vector<float> weights = class_weights(run);
  if (!weights.empty()) lines.push_back("class weights: " + weights_text(weights));
  if (run.data().sampling() == DataConfig::BALANCED) {
    lines.emplace_back("sampling: drawn with replacement, all classes equally often");
  }
  lines.push_back(fmt::format("batch {} over all ranks, {} per epoch, results in {}",
                              run.batch().global(), plural(info.steps_per_epoch, "step"),
                              folder.path.string()));
  if (const Grid grid = grid_of(run, 0, ranks); grid.has_pipeline()) {
    lines.push_back(fmt::format("pipeline: {} of {}, cut after {}", plural(grid.stages, "stage"),
                                plural(grid.replicas, "replica"),
                                fmt::join(info.last_layers, " and ")));
  }
  if (!info.recomputation.empty()) lines.push_back("memory: " + info.recomputation);
  if (resumed) {
    lines.push_back(fmt::format("resumed from {} (step {}, {} samples into epoch {})",
                                resumed->path.string(), resumed->state.step,
                                resumed->state.position, resumed->state.epoch + 1));
  }
  return lines;
}

std::string complete_line(const RunFolder& folder, const CheckpointState& state,
                          const std::string& why_early) {
  const std::string done = fmt::format("{} is complete: {}, {}", folder.path.string(),
                                       plural(state.epoch, "epoch"), plural(state.step, "step"));
  if (why_early.empty()) {
    return done +
           "; raise train.epochs or train.max_steps to continue, or choose another --run-dir";
  }
  return done + ", stopped early: " + why_early +
         "; raise train.early_stopping.patience to continue, or choose another --run-dir";
}

std::vector<std::string> closing_lines(const Summary& summary,
                                       const std::optional<BestCheckpoint>& best) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format(
      "{}: {}, {}{} in {}, {}, data wait {:.1f}%, exposed comm {:.1f}%, peak "
      "memory {} per rank",
      summary.status, plural(summary.epochs, "epoch"), plural(summary.steps, "step"),
      summary.skipped_steps > 0 ? fmt::format(" ({} skipped)", summary.skipped_steps) : "",
      format_duration(summary.wall_seconds),
      speed_text(summary.samples_per_second, summary.tokens_per_second),
      100 * summary.data_wait_fraction, 100 * summary.exposed_comm_fraction,
      format_bytes(static_cast<double>(summary.peak_memory_bytes))));
  if (!summary.reason.empty()) lines.push_back("stopped early: " + summary.reason);
  if (best) {
    lines.push_back(fmt::format(
        "best: step {} (epoch {}), used by export, eval and predict{}", best->step, best->epoch,
        best->step == summary.best_step ? ": " + metrics_text(summary.best) : ""));
  }
  if (summary.bad_records > 0) {
    lines.push_back(fmt::format("data: {} skipped (data.on_bad_record: SKIP)",
                                plural(summary.bad_records, "bad record")));
  }
  if (summary.eval.loss) lines.push_back("eval: " + metrics_text(summary.eval));
  if (summary.skipped_checkpoints > 0) {
    lines.push_back(fmt::format("{} skipped: due while the previous one was still being written",
                                plural(summary.skipped_checkpoints, "checkpoint")));
  }
  return lines;
}

std::vector<std::string> dropped_lines(std::span<const DropCounts::Count> counts) {
  std::vector<std::string> lines;
  for (const DropCounts::Count& count : counts) {
    if (count.records == 0) continue;
    lines.push_back(fmt::format("{}: {} dropped, not written in time or not at all", count.sink,
                                plural(count.records, "record")));
  }
  return lines;
}

std::string stopped_line(const RunFolder& folder, const std::string& resume) {
  return fmt::format(
      "stopped by a signal and saved; to resume, run the same command with --run-dir {}{}",
      folder.path.string(), resume == "auto" ? "" : " --resume auto");
}

}  // namespace trireme::train
