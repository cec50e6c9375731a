#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/base/json.h"
#include "trainer/report/record_fields.h"
#include "trainer/report/run_records.h"

namespace trireme::train {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxListedProblems = 5;

// Adds the lines of metrics.jsonl to the records.
class MetricsReader {
 public:
  explicit MetricsReader(RunRecords& records) : records_(records) {}

  void line(std::string_view line, int64_t line_number) {
    const Json fields = parse_json(line, /*throws=*/false);
    const Json* kind = fields.is_object() ? find_field(fields, "event") : nullptr;
    if (!kind || !kind->is_string()) return damaged(line_number);
    const auto& name = kind->get_ref<const std::string&>();
    if (name == "step") return step(fields);
    if (name == "eval") return evaluation(fields);
    if (name == "ranks") return lag(fields);
    if (name == "start") start(fields);
    if (name == "checkpoint") wait(number_field(fields, "stall_seconds"));
    records_.events.push_back({name, count_field(fields, "step"), fields});
  }

  void end() {
    if (damaged_ <= kMaxListedProblems) return;
    records_.problems.push_back(
        fmt::format("metrics.jsonl: {} more damaged lines", damaged_ - kMaxListedProblems));
  }

 private:
  void damaged(int64_t line_number) {
    if (++damaged_ > kMaxListedProblems) return;
    records_.problems.push_back(
        fmt::format("metrics.jsonl:{}: the line is damaged and was skipped", line_number));
  }

  void wait(Recorded seconds) {
    if (seconds && std::isfinite(*seconds) && *seconds > 0) seconds_ += *seconds;
  }

  // Appends a point. A run that resumed from a checkpoint repeats some steps: the later ones
  // replace the earlier ones.
  template <class Point>
  static void add(std::vector<Point>& points, Point point) {
    while (!points.empty() && points.back().step >= point.step) points.pop_back();
    points.push_back(std::move(point));
  }

  void step(const Json& fields) {
    StepPoint point;
    point.step = count_field(fields, "step");
    point.epoch = count_field(fields, "epoch");
    point.train_loss = number_field(fields, "train_loss");
    point.learning_rate = number_field(fields, "learning_rate");
    point.samples_per_second = number_field(fields, "samples_per_second");
    point.model_flops_utilization = number_field(fields, "model_flops_utilization");
    point.padding_share = number_field(fields, "padding_share");
    point.step_ms = number_field(fields, "step_ms");
    point.data_wait_ms = number_field(fields, "data_wait_ms");
    point.exposed_comm_ms = number_field(fields, "exposed_comm_ms");
    point.forward_ms = number_field(fields, "forward_ms");
    point.backward_ms = number_field(fields, "backward_ms");
    point.update_ms = number_field(fields, "update_ms");
    point.idle_ms = number_field(fields, "idle_ms");
    point.gpu_load_percent = number_field(fields, "gpu_load_percent");
    wait(point.step_ms.value_or(0) / 1000 * static_cast<double>(point.step - step_));
    step_ = point.step;
    point.seconds = seconds_;
    add(records_.steps, point);
  }

  void evaluation(const Json& fields) {
    EvalPoint point;
    point.step = count_field(fields, "step");
    point.epoch = count_field(fields, "epoch");
    point.samples = count_field(fields, "samples");
    point.metrics = metric_fields(fields, "eval_");
    point.took = number_field(fields, "seconds");
    wait(point.took);
    point.seconds = seconds_;
    add(records_.evaluations, point);
  }

  void lag(const Json& fields) {
    LagPoint point;
    point.step = count_field(fields, "step");
    const Json* ranks = find_field(fields, "lag_ms");
    if (!ranks || !ranks->is_array()) return;
    for (const Json& ms : *ranks) point.ms.push_back(as_number(ms));
    const Json* stages = find_field(fields, "stage_utilization");
    if (stages && stages->is_array()) {
      for (const Json& part : *stages) point.stage_utilization.push_back(as_number(part));
    }
    add(records_.lags, std::move(point));
  }

  void start(const Json& fields) {
    StartPoint point;
    point.step = step_ = count_field(fields, "step");
    point.epoch = count_field(fields, "epoch");
    point.position = count_field(fields, "position");
    point.samples_per_epoch = count_field(fields, "samples_per_epoch");
    point.global_batch = count_field(fields, "batch_global");
    point.steps_per_epoch = count_field(fields, "steps_per_epoch");
    records_.global_batch = point.global_batch;
    records_.tokens_per_sample = count_field(fields, "tokens_per_sample");
    records_.steps_per_epoch = point.steps_per_epoch;
    add(records_.starts, point);
    records_.model = text_field(fields, "model");
    records_.precision = text_field(fields, "precision");
    records_.parameters = count_field(fields, "parameters");
    records_.ranks = static_cast<int>(std::min<int64_t>(count_field(fields, "ranks"), 1 << 20));
    records_.planned_steps = count_field(fields, "total_steps");
  }

  RunRecords& records_;
  int64_t step_ = 0;
  double seconds_ = 0;
  size_t damaged_ = 0;
};

}  // namespace

void read_metrics(std::string_view content, RunRecords& records) {
  MetricsReader reader(records);
  int64_t line_number = 0;
  while (!content.empty()) {
    const size_t end = content.find('\n');
    if (end == std::string_view::npos) break;  // still being written, or truncated by a crash
    reader.line(content.substr(0, end), ++line_number);
    content.remove_prefix(end + 1);
  }
  reader.end();
}

std::optional<Summary> parse_summary(const std::string& content) {
  const Json fields = parse_json(content, /*throws=*/false);
  if (!fields.is_object() || text_field(fields, "status").empty()) return std::nullopt;
  const auto or_zero = [&](const char* key) { return number_field(fields, key).value_or(0); };
  Summary summary;
  summary.status = text_field(fields, "status");
  summary.ended_by = text_field(fields, "ended_by");
  summary.reason = text_field(fields, "reason");
  summary.ranks = static_cast<int>(std::min<int64_t>(count_field(fields, "ranks"), 1 << 20));
  summary.precision = text_field(fields, "precision");
  summary.epochs = count_field(fields, "epochs");
  summary.steps = count_field(fields, "steps");
  summary.skipped_steps = count_field(fields, "skipped_steps");
  summary.samples_per_second = or_zero("samples_per_second");
  summary.tokens_per_second = number_field(fields, "tokens_per_second");
  summary.model_flops_utilization = number_field(fields, "model_flops_utilization");
  summary.padding_share = number_field(fields, "padding_share");
  summary.wall_seconds = or_zero("wall_seconds");
  summary.train_loss = or_zero("train_loss");
  summary.eval = metric_fields(fields, "eval_");
  summary.eval_step = count_field(fields, "eval_step");
  summary.best = metric_fields(fields, "best_");
  summary.best_step = count_field(fields, "best_step");
  summary.best_metric = text_field(fields, "best_metric");
  summary.data_wait_fraction = or_zero("data_wait_fraction");
  summary.exposed_comm_fraction = or_zero("exposed_comm_fraction");
  summary.bad_records = count_field(fields, "bad_records");
  summary.peak_memory_bytes = count_field(fields, "peak_memory_bytes");
  summary.skipped_checkpoints = count_field(fields, "saves_left_out");
  summary.seconds_to_first_step = or_zero("seconds_to_first_step");
  return summary;
}

}  // namespace trireme::train
