#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <vector>

#include "core/text.h"
#include "core/version.h"
#include "launch/report/decimation.h"
#include "launch/report/report.h"
#include "trainer/base/json.h"
#include "trainer/config/config_diff.h"
#include "trainer/report/record_fields.h"

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

// Maximum sizes of the parts of the page.
constexpr size_t kCurvePoints = 3000;
constexpr size_t kMeans = 600;
constexpr size_t kTimes = 200;      // ranges of steps in the chart of step times
constexpr size_t kLagCells = 8000;  // ranks times ranges of steps
constexpr size_t kEvents = 400;     // per kind
constexpr size_t kClasses = 200;
constexpr size_t kMistakes = 24;

// Rounds values of which the page shows only a few digits.
Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr);
}

Json or_null(const train::Recorded& value) { return value ? Json(*value) : Json(); }

// Returns the points of a curve to draw and, if points were dropped, means of ranges of points,
// which the page smooths. `field` selects the value of a point.
template <class Point, class Field>
Json curve(const std::vector<Point>& points, Field field) {
  const auto value_of = [&](const Point& point) -> const train::Recorded& {
    return std::invoke(field, point);
  };
  std::vector<double> values;
  for (const Point& point : points) values.push_back(value_of(point).value_or(NAN));
  Json steps = Json::array();
  Json drawn_values = Json::array();
  const std::vector<size_t> drawn = points_to_draw(values, kCurvePoints);
  for (const size_t i : drawn) {
    steps.push_back(points[i].step);
    drawn_values.push_back(or_null(value_of(points[i])));
  }
  Json out = {{"steps", steps}, {"values", drawn_values}};
  if (drawn.size() == points.size()) return out;
  out["count"] = points.size();
  out["mean_steps"] = Json::array();
  out["means"] = Json::array();
  const std::vector<double> weights(points.size(), 1.0);
  for (const Range& range : even_ranges(points.size(), kMeans)) {
    const auto part = [&](const std::vector<double>& all) {
      return std::span(all).subspan(range.begin, range.end - range.begin);
    };
    out["mean_steps"].push_back(points[(range.begin + range.end) / 2].step);
    out["means"].push_back(rounded(weighted_mean(part(values), part(weights))));
  }
  return out;
}

// Returns pairs of step and time, between which the page interpolates.
Json clock(const train::RunRecords& run) {
  Json steps = {0};
  Json seconds = {0};
  for (const Range& range : even_ranges(run.steps.size(), kMeans)) {
    const train::StepPoint& point = run.steps[range.end - 1];
    steps.push_back(point.step);
    seconds.push_back(rounded(point.seconds));
  }
  return {{"steps", steps}, {"seconds", seconds}};
}

// Returns the number of steps that each record represents.
std::vector<double> steps_recorded(const std::vector<train::StepPoint>& points) {
  std::vector<double> counts;
  int64_t before = points.empty() ? 0 : points.front().step - 1;
  for (const train::StepPoint& point : points) {
    counts.push_back(static_cast<double>(point.step - before));
    before = point.step;
  }
  return counts;
}

struct TimePart {
  const char* name;
  train::Recorded train::StepPoint::*field;
};
constexpr TimePart kTimeParts[] = {{"data wait", &train::StepPoint::data_wait_ms},
                                   {"forward", &train::StepPoint::forward_ms},
                                   {"backward", &train::StepPoint::backward_ms},
                                   {"exposed communication", &train::StepPoint::exposed_comm_ms},
                                   {"update", &train::StepPoint::update_ms},
                                   {"other stages", &train::StepPoint::idle_ms}};

// Returns the mean milliseconds per step of each part in a range of records, the rest of the step
// last.
Json mean_parts(const std::vector<train::StepPoint>& points, const std::vector<double>& counts,
                Range range) {
  const auto mean = [&](train::Recorded train::StepPoint::*field) {
    std::vector<double> values;
    for (size_t i = range.begin; i < range.end; ++i) {
      values.push_back((points[i].*field).value_or(NAN));
    }
    const double mean_value =
        weighted_mean(values, std::span(counts).subspan(range.begin, range.end - range.begin));
    return std::isfinite(mean_value) ? mean_value : 0;
  };
  Json parts = Json::array();
  double rest = mean(&train::StepPoint::step_ms);
  for (const TimePart& part : kTimeParts) {
    const double ms = mean(part.field);
    rest -= ms;
    parts.push_back(rounded(ms));
  }
  parts.push_back(rounded(std::max(0.0, rest)));
  return parts;
}

Json times(const train::RunRecords& run) {
  if (run.steps.empty()) return nullptr;
  const std::vector<double> counts = steps_recorded(run.steps);
  Json names = Json::array();
  for (const TimePart& part : kTimeParts) names.emplace_back(part.name);
  // Runs of earlier versions, and of some devices, do not record the parts of the computation.
  const bool parts_known =
      std::any_of(run.steps.begin(), run.steps.end(),
                  [](const train::StepPoint& p) { return p.forward_ms.has_value(); });
  names.emplace_back(parts_known ? "rest" : "computation");
  Json steps = Json::array();
  Json parts = Json::array();
  // Leaves out the first step, which includes initialization.
  const size_t first = run.steps.size() > 1 ? 1 : 0;
  for (Range range : even_ranges(run.steps.size() - first, kTimes)) {
    range = {range.begin + first, range.end + first};
    steps.push_back(run.steps[range.end - 1].step);
    parts.push_back(mean_parts(run.steps, counts, range));
  }
  return {{"parts", names},
          {"mean", mean_parts(run.steps, counts, {first, run.steps.size()})},
          {"steps", steps},
          {"ms", parts}};
}

Json lag(const train::RunRecords& run) {
  if (run.lags.empty()) return nullptr;
  const size_t ranks = run.lags.back().ms.size();
  if (ranks == 0) return nullptr;
  const auto mean = [&](size_t rank, Range range) {
    std::vector<double> values;
    for (size_t i = range.begin; i < range.end; ++i) {
      if (rank < run.lags[i].ms.size()) values.push_back(run.lags[i].ms[rank].value_or(NAN));
    }
    return rounded(weighted_mean(values, std::vector<double>(values.size(), 1.0)));
  };
  const auto ranges = even_ranges(run.lags.size(), std::clamp<size_t>(kLagCells / ranks, 8, 120));
  Json steps = Json::array();
  for (const Range& range : ranges) steps.push_back(run.lags[range.end - 1].step);
  Json means = Json::array();
  Json by_rank = Json::array();
  for (size_t rank = 0; rank < ranks; ++rank) {
    means.push_back(mean(rank, {0, run.lags.size()}));
    Json row = Json::array();
    for (const Range& range : ranges) row.push_back(mean(rank, range));
    by_rank.push_back(row);
  }
  return {{"steps", steps}, {"mean", means}, {"ms", by_rank}};
}

// Returns the mean utilization of each pipeline stage; null if there is one stage.
Json stages(const train::RunRecords& run) {
  if (run.lags.empty() || run.lags.back().stage_utilization.empty()) return nullptr;
  Json means = Json::array();
  for (size_t stage = 0; stage < run.lags.back().stage_utilization.size(); ++stage) {
    std::vector<double> values;
    for (const train::LagPoint& point : run.lags) {
      if (stage >= point.stage_utilization.size()) continue;  // of a run with fewer stages
      values.push_back(point.stage_utilization[stage].value_or(NAN));
    }
    means.push_back(rounded(weighted_mean(values, std::vector<double>(values.size(), 1.0))));
  }
  return means;
}

std::string field_text(const nlohmann::json& fields, const char* key) {
  const auto found = fields.find(key);
  return found != fields.end() && found->is_string() ? found->get<std::string>() : "";
}

train::Recorded field_number(const nlohmann::json& fields, const char* key) {
  const auto found = fields.find(key);
  return found != fields.end() ? train::as_number(*found) : std::nullopt;
}

std::string describe(const train::RunEvent& event) {
  const nlohmann::json& fields = event.fields;
  if (event.kind == "start") {
    const std::string resumed = field_text(fields, "resumed_from");
    const double ranks = field_number(fields, "ranks").value_or(0);
    return fmt::format("{} on {:.0f} rank{}",
                       resumed.empty() ? "started" : "resumed from " + resumed, ranks,
                       ranks == 1 ? "" : "s");
  }
  if (event.kind == "checkpoint") {
    const bool best = fields.contains("best") && fields["best"] == true;
    return fmt::format("saved {}{} in {}",
                       std::filesystem::path(field_text(fields, "path")).filename().string(),
                       best ? ", the best so far," : "",
                       format_duration(field_number(fields, "seconds").value_or(0)));
  }
  if (event.kind == "loss_spike") {
    return fmt::format("loss {:.4g}, {:.1f} standard deviations above the preceding mean {:.4g}",
                       field_number(fields, "train_loss").value_or(0),
                       field_number(fields, "deviations").value_or(0),
                       field_number(fields, "mean_before").value_or(0));
  }
  if (event.kind == "end") {
    const std::string reason = field_text(fields, "reason");
    return field_text(fields, "status") + (reason.empty() ? "" : ", stopped early: " + reason);
  }
  return field_text(fields, "what");
}

Json events(const train::RunRecords& run) {
  Json out = Json::array();
  std::map<std::string, size_t> seen;
  std::map<std::string, size_t> all;
  for (const train::RunEvent& event : run.events) ++all[event.kind];
  for (const train::RunEvent& event : run.events) {
    // Keeps the latest checkpoints, and the first events of all other kinds.
    const size_t number = seen[event.kind]++;
    const bool late = all[event.kind] - number <= kEvents;
    if (event.kind == "checkpoint" ? !late : number >= kEvents) continue;
    out.push_back({{"kind", event.kind}, {"step", event.step}, {"text", describe(event)}});
  }
  for (const auto& [kind, count] : all) {
    if (count <= kEvents) continue;
    out.push_back({{"kind", kind},
                   {"step", nullptr},
                   {"text", fmt::format("{} more are in metrics.jsonl", count - kEvents)}});
  }
  return out;
}

// Sets a field for each metric, which is null if it has no value.
template <class Value>
void put_each_metric(Json& object, Value value) {
  for (const train::MetricInfo& metric : train::kEvaluationMetrics) {
    object[metric.name] = value(metric);
  }
}

Json eval_row(const train::EvalPoint& point) {
  Json row = {{"step", point.step},
              {"epoch", point.epoch},
              {"seconds", point.seconds},
              {"samples", point.samples}};
  put_each_metric(
      row, [&](const train::MetricInfo& metric) { return or_null(point.metrics.*metric.value); });
  row["took"] = or_null(point.took);
  return row;
}

Json evaluations(const train::RunRecords& run) {
  if (run.evaluations.empty()) return nullptr;
  Json out = Json::object();
  put_each_metric(out, [&](const train::MetricInfo& metric) {
    const auto value = [&](const train::EvalPoint& point) -> const train::Recorded& {
      return point.metrics.*metric.value;
    };
    const bool exists = std::ranges::any_of(
        run.evaluations, [&](const auto& point) { return value(point).has_value(); });
    return exists ? curve(run.evaluations, value) : Json();
  });
  out["best"] = run.best() ? eval_row(*run.best()) : Json();
  out["last"] = eval_row(run.evaluations.back());
  return out;
}

bool is_square(const nlohmann::json& rows) {
  if (!rows.is_array() || rows.empty() || rows.size() > kClasses) return false;
  return std::all_of(rows.begin(), rows.end(), [&](const nlohmann::json& row) {
    return row.is_array() && row.size() == rows.size() &&
           std::all_of(row.begin(), row.end(), [](const auto& cell) { return cell.is_number(); });
  });
}

bool is_base64(const std::string& text) {
  return text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") ==
         std::string::npos;
}

Json mistake(const nlohmann::json& from) {
  Json out = Json::object();
  for (const char* key : {"index", "label", "predicted", "probability"}) {
    out[key] = or_null(field_number(from, key));
  }
  out["where"] = field_text(from, "where");
  if (const std::string png = field_text(from, "png"); !png.empty() && is_base64(png)) {
    out["png"] = png;
  }
  return out;
}

// Returns the scores of each class.
Json per_class(const nlohmann::json& from) {
  Json out = Json::array();
  if (!from.is_array() || from.size() > kClasses) return out;
  for (const auto& each : from) {
    Json row = Json::object();
    for (const char* key : {"precision", "recall", "f1", "support"}) {
      row[key] = each.is_object() ? or_null(field_number(each, key)) : Json();
    }
    out.push_back(std::move(row));
  }
  return out;
}

// Returns the confusion matrix, the scores of the classes and the mistakes in evaluation.json.
Json confusion(const train::RunRecords& run) {
  const nlohmann::json& from = run.evaluation;
  if (!from.is_object()) return nullptr;
  Json out = {{"step", or_null(field_number(from, "step"))},
              {"classes", Json::array()},
              {"per_class", Json::array()},
              {"matrix", nullptr},
              {"mistakes", Json::array()}};
  if (const auto names = from.find("classes"); names != from.end() && names->is_array()) {
    for (const auto& name : *names) {
      out["classes"].push_back(name.is_string() ? name.get<std::string>() : "");
    }
  }
  if (const auto list = from.find("per_class"); list != from.end())
    out["per_class"] = per_class(*list);
  if (const auto matrix = from.find("confusion"); matrix != from.end() && is_square(*matrix)) {
    out["matrix"] = *matrix;
  }
  if (const auto list = from.find("mistakes"); list != from.end() && list->is_array()) {
    for (const auto& each : *list) {
      if (each.is_object() && out["mistakes"].size() < kMistakes) {
        out["mistakes"].push_back(mistake(each));
      }
    }
  }
  return out;
}

Json end_of(const train::RunRecords& run) {
  if (!run.summary) return nullptr;
  const train::Summary& end = *run.summary;
  Json out = {{"train_loss", end.train_loss},
              {"reason", end.reason},
              {"wall_seconds", end.wall_seconds},
              {"data_wait_fraction", end.data_wait_fraction},
              {"exposed_comm_fraction", end.exposed_comm_fraction},
              {"seconds_to_first_step", end.seconds_to_first_step},
              {"peak_memory_bytes", end.peak_memory_bytes},
              {"bad_records", end.bad_records},
              {"saves_left_out", end.skipped_checkpoints}};
  train::put_metrics(out, "eval_", end.eval, train::Missing::kNull);
  return out;
}

// Returns pairs of step and epoch for the starts, resumes and the end. In between, epochs grow
// linearly with steps.
Json epochs(const train::RunRecords& run) {
  std::vector<int64_t> steps;
  std::vector<double> values;
  const auto add = [&](int64_t step) {
    if (!steps.empty() && step <= steps.back()) return;
    steps.push_back(step);
    values.push_back(run.epochs_at(step));
  };
  for (const train::StartPoint& start : run.starts) add(start.step);
  if (!run.steps.empty()) add(run.steps.back().step);
  return {{"steps", steps}, {"values", values}};
}

// Returns a value of the whole run once it has ended, until then that of the last record.
train::Recorded of_summary_or_last(const train::RunRecords& run,
                                   std::optional<double> train::Summary::*value,
                                   train::Recorded last) {
  return run.summary ? *run.summary.*value : last;
}

Json run_data(const train::RunRecords& run, const std::string& name) {
  const train::StepPoint last = run.steps.empty() ? train::StepPoint{} : run.steps.back();
  return {{"name", name},
          {"path", run.folder.string()},
          {"status", to_string(run.status)},
          {"ending", run.status_detail},
          {"model", run.model},
          {"precision", run.precision},
          {"parameters", run.parameters},
          {"ranks", run.ranks},
          {"global_batch", run.global_batch},
          {"epochs", epochs(run)},
          {"planned_steps", run.planned_steps},
          {"step", last.step},
          {"seconds", last.seconds},
          {"last_loss", or_null(last.train_loss)},
          {"samples_per_second", or_null(run.samples_per_second())},
          {"tokens_per_second", or_null(run.tokens_per_second())},
          {"utilization", or_null(of_summary_or_last(run, &train::Summary::model_flops_utilization,
                                                     last.model_flops_utilization))},
          {"padding",
           or_null(of_summary_or_last(run, &train::Summary::padding_share, last.padding_share))},
          {"summary", end_of(run)},
          {"records", run.steps.size()},
          {"clock", clock(run)},
          {"loss", curve(run.steps, &train::StepPoint::train_loss)},
          {"learning_rate", curve(run.steps, &train::StepPoint::learning_rate)},
          {"throughput", curve(run.steps, &train::StepPoint::samples_per_second)},
          {"utilizations", curve(run.steps, &train::StepPoint::model_flops_utilization)},
          {"paddings", curve(run.steps, &train::StepPoint::padding_share)},
          {"gpu_load", curve(run.steps, &train::StepPoint::gpu_load_percent)},
          {"evaluations", evaluations(run)},
          {"times", times(run)},
          {"lag", lag(run)},
          {"stages", stages(run)},
          {"confusion", confusion(run)},
          {"events", events(run)},
          {"environment", run.environment},
          {"config", run.config_text},
          {"problems", run.problems}};
}

// Returns the names of the folders, or their paths if the names are not unique.
std::vector<std::string> names_of(std::span<const train::RunRecords> runs) {
  std::vector<std::string> names;
  for (const train::RunRecords& run : runs) {
    const auto path = std::filesystem::absolute(run.folder).lexically_normal();
    names.push_back((path.has_filename() ? path : path.parent_path()).filename().string());
  }
  if (std::set(names.begin(), names.end()).size() == names.size()) return names;
  for (size_t i = 0; i < runs.size(); ++i) names[i] = runs[i].folder.string();
  return names;
}

// Describes the metrics of evaluations for the page.
Json metrics() {
  Json list = Json::array();
  for (const train::MetricInfo& metric : train::kEvaluationMetrics) {
    list.push_back({{"name", metric.name},
                    {"title", metric.title},
                    {"ratio", metric.is_ratio},
                    {"brief", metric.is_brief}});
  }
  return list;
}

// Returns the fields that differ between runs, with the value in each run.
Json config_table(std::span<const train::RunRecords> runs) {
  std::vector<std::string> paths;  // in the order of their first occurrence
  std::map<std::string, Json> rows;
  for (size_t i = 1; i < runs.size(); ++i) {
    for (const train::ConfigDifference& field :
         train::config_differences(runs[0].config, runs[i].config)) {
      if (!rows.contains(field.path)) {
        paths.push_back(field.path);
        rows[field.path] = Json(std::vector<std::string>(runs.size(), field.a));
      }
      rows[field.path][i] = field.b;
    }
  }
  Json table = Json::array();
  for (const std::string& path : paths) table.push_back({{"path", path}, {"values", rows[path]}});
  return table;
}

}  // namespace

Json report_data(std::span<const train::RunRecords> runs) {
  const std::vector<std::string> names = names_of(runs);
  Json data = {{"version", version()}, {"metrics", metrics()}, {"runs", Json::array()}};
  for (size_t i = 0; i < runs.size(); ++i) data["runs"].push_back(run_data(runs[i], names[i]));
  data["differences"] = config_table(runs);
  return data;
}

}  // namespace trireme::cli
