// `trireme runs`: lists the runs in a folder and its subfolders.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/message.h"
#include "launch/table.h"
#include "trainer/base/json.h"
#include "trainer/report/record_fields.h"
#include "trainer/report/run_records.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr int kMaxFolderDepth = 4;

struct RunsOptions {
  std::string folder;
  std::string sort = "when";
  bool json = false;
};

// A row of the table. Unknown values are 0 or empty.
struct Row {
  std::string name;
  std::string status;
  std::string ended_by;  // see Summary
  std::string problem;   // why the run, or a part of it, cannot be read
  std::string model;
  int64_t step = 0, planned = 0, per_epoch = 0;
  double epochs = 0, planned_epochs = 0;
  train::EvalPoint best, last;  // evaluations
  std::string best_metric;      // by which `best` is the best
  train::Recorded train_loss;
  train::Recorded speed;
  int ranks = 0;
  std::chrono::system_clock::time_point when;
};

Row read_row(const fs::path& folder, const std::string& name) {
  Row row;
  row.name = name;
  try {
    const train::RunRecords run = train::read_run(folder);
    row.status = to_string(run.status);
    if (run.summary) row.ended_by = run.summary->ended_by;
    row.problem = run.problems.empty() ? "" : run.problems.front();
    row.model = run.model;
    row.planned = run.planned_steps;
    row.per_epoch = run.steps_per_epoch;
    row.planned_epochs = run.epochs_at(run.planned_steps);
    row.ranks = run.ranks;
    row.speed = run.samples_per_second();
    if (run.last_written != decltype(run.last_written){}) {
      row.when = std::chrono::file_clock::to_sys(run.last_written);
    }
    if (const train::EvalPoint* best = run.best()) row.best = *best;
    if (!run.evaluations.empty()) row.last = run.evaluations.back();
    row.best_metric = run.best_by();
    if (!run.steps.empty()) {
      row.step = run.steps.back().step;
      row.epochs = run.epochs_at(row.step);
      row.train_loss = run.steps.back().train_loss;
    }
  } catch (const Error& error) {
    row.status = "broken";
    row.problem = error.what();
  }
  return row;
}

// Appends the runs in `folder` and its subfolders. Does not look for runs inside runs.
void find_runs(const fs::path& folder, const std::string& name, int depth, std::vector<Row>& rows) {
  if (train::is_run_folder(folder)) return rows.push_back(read_row(folder, name));
  if (depth == kMaxFolderDepth) return;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string child = entry.path().filename().string();
    if (!entry.is_directory(none) || entry.is_symlink(none) || child.starts_with('.')) continue;
    find_runs(entry.path(), depth == 0 ? child : name + "/" + child, depth + 1, rows);
  }
}

// Sort keys. Unknown values and NaN come last.
double ascending(const train::Recorded& value) {
  return value && !std::isnan(*value) ? *value : std::numeric_limits<double>::infinity();
}
double descending(const train::Recorded& value) {
  return value ? ascending(-*value) : ascending({});
}

void sort_rows(std::vector<Row>& rows, const std::string& field) {
  std::ranges::sort(rows, {}, &Row::name);
  const auto by = [&](auto key) { std::ranges::stable_sort(rows, {}, key); };
  if (field == "when") by([](const Row& row) { return -row.when.time_since_epoch(); });
  if (field == "status") by([](const Row& row) { return row.status; });
  if (field == "model") by([](const Row& row) { return row.model; });
  if (field == "step") by([](const Row& row) { return -row.step; });
  if (field == "ranks") by([](const Row& row) { return -row.ranks; });
  if (field == "speed") by([](const Row& row) { return descending(row.speed); });
  if (field == "loss") by([](const Row& row) { return ascending(row.train_loss); });
  if (field == "best") {
    by([](const Row& row) {
      const train::EvaluationMetrics& best = row.best.metrics;
      return std::pair(descending(best.accuracy), ascending(best.loss));
    });
  }
}

// Returns the accuracy or else the loss.
std::string brief_text(const train::EvaluationMetrics& metrics) {
  if (metrics.accuracy) return fmt::format("{:.2f}%", 100 * *metrics.accuracy);
  return metrics.loss ? fmt::format("{:.4g}", train::PlainNumber{*metrics.loss}) : "";
}

std::string progress_text(const Row& row) {
  if (row.planned == 0) return "";
  if (row.planned_epochs == 0) return fmt::format("{}/{}", row.step, row.planned);
  return fmt::format("{:.0f}/{:.0f}", std::floor(row.epochs), std::ceil(row.planned_epochs));
}

std::string when_text(const Row& row) {
  if (row.when == std::chrono::system_clock::time_point{}) return "";
  const auto time = std::chrono::system_clock::to_time_t(row.when);
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(time));
}

// Returns the brief metrics that some run has, except those shown in the column "best".
std::vector<const train::MetricInfo*> more_metrics(const std::vector<Row>& rows) {
  std::vector<const train::MetricInfo*> metrics;
  for (const train::MetricInfo& metric : train::kEvaluationMetrics) {
    const bool shown = metric.value == &train::EvaluationMetrics::loss ||
                       metric.value == &train::EvaluationMetrics::accuracy;
    const auto has = [&](const Row& row) { return (row.best.metrics.*metric.value).has_value(); };
    if (metric.is_brief && !shown && std::ranges::any_of(rows, has)) metrics.push_back(&metric);
  }
  return metrics;
}

void print_table(const std::vector<Row>& rows) {
  std::vector<Table::Column> columns = {
      {"run", false, 10},     {"status", false, 9}, {"model", false, 5}, {"step", true, 3},
      {"epoch", true, 6},     {"best", true, 8},    {"last", true, 5},   {"loss", true, 7},
      {"samples/s", true, 4}, {"ranks", true, 1},   {"when", false, 2}};
  const size_t after_last = 7;
  const std::vector<const train::MetricInfo*> metrics = more_metrics(rows);
  for (size_t i = 0; i < metrics.size(); ++i) {
    columns.insert(columns.begin() + static_cast<ptrdiff_t>(after_last + i),
                   {metrics[i]->title, true, 5});
  }
  Table table(std::move(columns));
  for (const Row& row : rows) {
    const bool early = row.ended_by == "early_stopping";
    std::vector<std::string> cells = {row.name,
                                      row.status + (early ? " early" : ""),
                                      row.model,
                                      row.step > 0 ? std::to_string(row.step) : "",
                                      progress_text(row),
                                      brief_text(row.best.metrics),
                                      brief_text(row.last.metrics)};
    for (const train::MetricInfo* metric : metrics) {
      const train::Recorded& value = row.best.metrics.*metric->value;
      cells.push_back(value ? train::metric_text(*metric, *value) : "");
    }
    cells.insert(cells.end(), {row.train_loss ? train::loss_text(*row.train_loss) : "",
                               row.speed ? format_count(*row.speed) : "",
                               row.ranks > 0 ? std::to_string(row.ranks) : "", when_text(row)});
    table.add(std::move(cells));
  }
  std::fputs(table.fitting().c_str(), stdout);
  for (const Row& row : rows) {
    if (!row.problem.empty()) print_message("{}: {}\n", row.name, row.problem);
  }
}

OrderedJson or_null(const train::Recorded& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

void print_json(const std::vector<Row>& rows) {
  OrderedJson list = OrderedJson::array();
  for (const Row& row : rows) {
    OrderedJson one = {{"name", row.name},
                       {"status", row.status},
                       {"ended_by", row.ended_by},
                       {"model", row.model},
                       {"step", row.step},
                       {"planned_steps", row.planned},
                       {"steps_per_epoch", row.per_epoch},
                       {"epochs", row.epochs},
                       {"planned_epochs", row.planned_epochs}};
    one["best_metric"] = row.best_metric;
    one["best_step"] = row.best.step;
    train::put_metrics(one, "best_", row.best.metrics, train::Missing::kNull);
    one["eval_step"] = row.last.step;
    train::put_metrics(one, "eval_", row.last.metrics, train::Missing::kNull);
    one["train_loss"] = or_null(row.train_loss);
    one["samples_per_second"] = or_null(row.speed);
    one["ranks"] = row.ranks;
    const bool has_time = row.when != std::chrono::system_clock::time_point{};
    one["written"] = has_time ? Json(std::chrono::system_clock::to_time_t(row.when)) : Json();
    one["problem"] = row.problem;
    list.push_back(std::move(one));
  }
  fmt::print("{}\n", train::json_text(list));
}

int runs(const RunsOptions& options) {
  if (!fs::is_directory(options.folder)) {
    throw ConfigError(options.folder, "no such folder; runs are in runs/ unless run_dir is set");
  }
  std::vector<Row> rows;
  const fs::path folder = fs::weakly_canonical(options.folder);
  find_runs(folder, folder.filename().string(), 0, rows);
  sort_rows(rows, options.sort);
  if (options.json) {
    print_json(rows);
  } else if (rows.empty()) {
    print_message("no runs in {}\n", options.folder);
  } else {
    print_table(rows);
  }
  return 0;
}

}  // namespace

void add_runs(ArgumentParser app, Command& chosen) {
  auto options = std::make_shared<RunsOptions>();
  ArgumentParser command = app.add_command("runs", "List runs with progress, accuracy and speed");
  command.add_option("DIR", options->folder, "Folder to search for runs, up to 4 levels deep")
      .required();
  command
      .add_option("--sort", options->sort,
                  "Sort by this column: best, speed, step and ranks in descending order, when with "
                  "the newest first, others in ascending order")
      .one_of({"when", "name", "status", "model", "step", "best", "loss", "speed", "ranks"})
      .show_default();
  command.add_flag("--json", options->json, "Print the runs as one JSON array");
  command.epilog(R"(Examples:
  trireme runs runs
  trireme runs runs --sort best

Status: running, done (early: by train.early_stopping), stopped (by a signal,
with a checkpoint; run it again to resume), failed (with an error message), dead
(ended without a message, usually because it was killed), broken (its files
cannot be read).
Best is the accuracy, or the loss for regression, of the best evaluation, and
last that of the last one; the columns after them are other metrics of the best.
Loss is the training loss. summary.json and --json have both evaluations.
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return runs(*options); }); });
}

}  // namespace trireme::cli
