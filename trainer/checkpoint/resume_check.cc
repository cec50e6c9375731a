#include "trainer/checkpoint/resume_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/file.h"
#include "trainer/config/config_diff.h"
#include "trainer/config/run_folder.h"
#include "trainer/optimizer/training_plan.h"
#include "trainer/step/batch_statistics.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxRefusedShown = 10;

// The configuration with which a checkpoint was written.
struct SavedConfig {
  std::optional<RunConfig> config;
  std::string problem;  // why the configuration is unknown
};

SavedConfig parse_saved(const std::string& text, const std::string& file) {
  try {
    return {parse_config(text, file, {}).run, ""};
  } catch (const ConfigError& error) {  // written by a version with other fields
    return {std::nullopt, error.what()};
  }
}

// Returns the configuration of a checkpoint of version 0.1, which contains only its hash. The run's
// config.txtpb is that of the latest start and may differ.
SavedConfig config_of_run(const FoundCheckpoint& checkpoint) {
  const RunFolder run{fs::absolute(checkpoint.path).lexically_normal().parent_path().parent_path()};
  std::error_code none;
  if (!fs::is_regular_file(run.config(), none)) {
    return {std::nullopt,
            "the checkpoint does not contain it, and there is no " + run.config().string()};
  }
  SavedConfig saved;
  try {
    saved = parse_saved(read_text(run.config()), run.config().string());
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
  if (saved.config && config_hash(*saved.config) != checkpoint.state.config_hash) {
    return {std::nullopt, "the checkpoint does not contain it, and " + run.config().string() +
                              " has changed since"};
  }
  return saved;
}

SavedConfig saved_config(const FoundCheckpoint& checkpoint) {
  if (checkpoint.state.config.empty()) return config_of_run(checkpoint);
  return parse_saved(checkpoint.state.config, checkpoint.path.string());
}

// Returns the differences without the fields of messages in a oneof of which another field is set;
// that difference is listed itself.
std::vector<ConfigDifference> changed_fields(const RunConfig& saved, const RunConfig& now) {
  std::vector<ConfigDifference> fields;
  std::vector<std::string> replaced;
  for (ConfigDifference& field : config_differences(saved, now)) {
    const auto encloses = [&](const std::string& path) { return field.path.starts_with(path); };
    if (std::ranges::any_of(replaced, encloses)) continue;
    for (const std::string& chosen : {field.a, field.b}) {
      if (!chosen.empty()) replaced.push_back(field.path + "." + chosen + ".");
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

std::string arrow(const ConfigDifference& field) {
  const auto or_unset = [](const std::string& value) { return value.empty() ? "unset" : value; };
  return fmt::format(": {} -> {}", or_unset(field.a), or_unset(field.b));
}

void refuse(const FoundCheckpoint& checkpoint, const Config& config,
            const std::vector<ConfigDifference>& fields) {
  std::string lines;
  size_t count = 0;
  for (const ConfigDifference& field : fields) {
    if (field.on_resume != OnResume::REFUSED || ++count > kMaxRefusedShown) continue;
    lines += "\n  " + config.where(field.path) + arrow(field);
  }
  if (count == 0) return;
  if (count > kMaxRefusedShown) lines += fmt::format("\n  and {} more", count - kMaxRefusedShown);
  const std::string path = checkpoint.path.string();
  throw ConfigError(
      path,
      fmt::format("cannot be resumed with another network, optimizer or task than it was "
                  "written with:{}\nUndo the changes, or start a new run from its parameters: "
                  "--init-from {} --run-dir NEW",
                  lines, path));
}

SamplePosition position_of(const CheckpointState& state) { return {state.epoch, state.position}; }

std::optional<std::string> rate_change(const CheckpointState& state, const RunConfig& saved,
                                       const ResumedRun& run) {
  const auto rate = [&](const RunConfig& config) {
    return TrainingPlan(config, run.samples, state.step, position_of(state))
        .learning_rate(position_of(state));
  };
  const double before = rate(saved);
  const double now = rate(run.config.run);
  if (before == now) return std::nullopt;
  return fmt::format("learning rate of the next step: {:.6g} -> {:.6g}", before, now);
}

// Describes what a change of the number of ranks or pipeline stages means for batch norm.
std::optional<std::string> rank_change(const CheckpointState& state, const SavedConfig& saved,
                                       const ResumedRun& run) {
  Config before = run.config;
  if (saved.config) before.run = *saved.config;
  const bool same_stages = before.run.parallel().stages() == run.config.run.parallel().stages();
  if (state.ranks == run.ranks && same_stages) return std::nullopt;
  return statistics_change(run.graph, {before, state.ranks}, {run.config, run.ranks});
}

// Throws ConfigError if carried states would be continued with other rows.
void require_same_rows(const FoundCheckpoint& checkpoint, const RunConfig& saved,
                       const Config& config) {
  const int64_t before = saved.batch().global(), now = config.run.batch().global();
  if (before == now || checkpoint.state.position == 0 || !model::is_stateful(config.run.model())) {
    return;
  }
  throw ConfigError(
      config.where("batch.global"),
      fmt::format(
          "{} -> {} cannot change within an epoch, since each row of a batch reads a part of "
          "the text of its own (stateful), and {} was saved within one; resume with {}, or "
          "from a checkpoint at the end of an epoch",
          before, now, checkpoint.path.string(), before));
}

}  // namespace

std::string describe_data_change(const CheckpointState& saved, const RunData& now) {
  std::vector<std::string> lines;
  if (saved.data) {
    lines = changes(*saved.data, now);
  } else if (saved.position >= now.training.samples) {
    lines = {
        fmt::format("training samples: more than {} -> {}", saved.position, now.training.samples)};
  }
  if (lines.empty()) return "";
  return fmt::format("the data has changed since it was saved: {}", fmt::join(lines, "; "));
}

DataError data_change_error(const FoundCheckpoint& checkpoint, const std::string& change) {
  return {checkpoint.path.string(),
          change +
              ". Restore the data, resume anyway with --accept-data-change, or start another run "
              "(--run-dir), with the parameters of this checkpoint if wanted (--init-from)"};
}

std::vector<std::string> check_changes(const FoundCheckpoint& checkpoint, const ResumedRun& run) {
  const CheckpointState& state = checkpoint.state;
  std::vector<std::string> lines;
  const SavedConfig saved = saved_config(checkpoint);
  if (saved.config) {
    const auto fields = changed_fields(*saved.config, run.config.run);
    refuse(checkpoint, run.config, fields);
    require_same_rows(checkpoint, *saved.config, run.config);
    for (const ConfigDifference& field : fields) {
      // The frequency of evaluations matters for early stopping, which counts them.
      const bool counted = run.config.run.train().has_early_stopping() &&
                           field.path.starts_with("train.eval_every_");
      if (field.on_resume == OnResume::WARNED || counted) {
        lines.push_back(field.path + arrow(field));
      }
    }
    if (!lines.empty()) {
      if (auto line = rate_change(state, *saved.config, run)) lines.push_back(std::move(*line));
    }
  } else if (state.config_hash != config_hash(run.config.run)) {
    lines.push_back("the configuration has changed, but its old fields are unknown: " +
                    saved.problem);
  }
  if (auto line = rank_change(state, saved, run)) lines.push_back(std::move(*line));
  return lines;
}

}  // namespace trireme::train
