#include "trainer/report/sinks/jsonl.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <span>
#include <string_view>

#include "trainer/base/json.h"
#include "trainer/report/record_fields.h"

namespace trireme::train {
namespace {

constexpr const char* kCheckpoint = "checkpoint";
// With more classes, the scores of each are only in evaluation.json, which has the latest.
constexpr size_t kMaxRecordedClasses = 200;

std::optional<LineStep> parse_line(std::string_view line) {
  const auto record = parse_json(line, /*throws=*/false);
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer()) {
    return std::nullopt;
  }
  // Checkpoints are written concurrently with later steps.
  return LineStep{record["step"].get<int64_t>(),
                  record.contains("event") && record["event"] == kCheckpoint};
}

// Formats the record directly rather than through a JSON tree, because step records are frequent.
void append(const StepRecord& r, std::string& text) {
  auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"event":"step","step":{},"epoch":{},"train_loss":{:.9g},)", r.step,
                 r.epoch, JsonNumber{r.train_loss});
  fmt::format_to(out,
                 R"("learning_rate":{:.9g},"samples_per_second":{:.6g},"step_ms":{:.4f},)"
                 R"("data_wait_ms":{:.4f},"exposed_comm_ms":{:.4f},"forward_ms":{:.4f},)"
                 R"("backward_ms":{:.4f},"update_ms":{:.4f},"comm_ms":{:.4f})",
                 JsonNumber{r.learning_rate}, JsonNumber{r.samples_per_second},
                 JsonNumber{r.step_ms}, JsonNumber{r.data_wait_ms}, JsonNumber{r.exposed_comm_ms},
                 JsonNumber{r.forward_ms}, JsonNumber{r.backward_ms}, JsonNumber{r.update_ms},
                 JsonNumber{r.comm_ms});
  if (r.idle_ms) fmt::format_to(out, R"(,"idle_ms":{:.4f})", JsonNumber{*r.idle_ms});
  if (r.tokens_per_second) {
    fmt::format_to(out, R"(,"tokens_per_second":{:.6g})", JsonNumber{*r.tokens_per_second});
  }
  if (r.model_flops_utilization) {
    fmt::format_to(out, R"(,"model_flops_utilization":{:.6g})",
                   JsonNumber{*r.model_flops_utilization});
  }
  if (r.padding_share) {
    fmt::format_to(out, R"(,"padding_share":{:.6g})", JsonNumber{*r.padding_share});
  }
  if (r.parameter_checksum) {
    fmt::format_to(out, R"(,"parameter_checksum":"{:016x}")", *r.parameter_checksum);
  }
  if (r.loss_scale) fmt::format_to(out, R"(,"loss_scale":{:.9g})", JsonNumber{*r.loss_scale});
  fmt::format_to(out, R"(,"skipped_steps":{})", r.skipped_steps);
  if (r.bad_records) fmt::format_to(out, R"(,"bad_records":{})", *r.bad_records);
  if (r.load) {
    fmt::format_to(
        out,
        R"(,"gpu_load_percent":{:.0f},"gpu_memory_bytes":{:.0f},"gpu_power_watts":{:.0f},)"
        R"("gpu_clock_mhz":{:.0f},"gpu_temperature_celsius":{:.0f})",
        JsonNumber{r.load->utilization_percent}, JsonNumber{r.load->memory_used_bytes},
        JsonNumber{r.load->power_watts}, JsonNumber{r.load->clock_mhz},
        JsonNumber{r.load->temperature_celsius});
  }
  text += '}';
}

nlohmann::ordered_json to_json(const StartRecord& r) {
  nlohmann::ordered_json event = {{"event", "start"},
                                  {"step", r.step},
                                  {"epoch", r.epoch},
                                  {"position", r.position},
                                  {"version", r.version},
                                  {"model", r.model},
                                  {"parameters", r.parameters},
                                  {"ranks", r.ranks},
                                  {"precision", r.precision},
                                  {"batch_global", r.global_batch},
                                  {"samples_per_epoch", r.samples_per_epoch},
                                  {"steps_per_epoch", r.steps_per_epoch},
                                  {"total_steps", r.total_steps},
                                  {"bad_records", r.bad_records}};
  if (r.tokens_per_sample > 0) event["tokens_per_sample"] = r.tokens_per_sample;
  if (r.resumed_from) event["resumed_from"] = *r.resumed_from;
  return event;
}

// Returns one list per score, with one element per class.
nlohmann::ordered_json per_class(std::span<const ClassScores> classes) {
  nlohmann::ordered_json lists;
  for (const ClassScores& of_class : classes) {
    lists["precision"].push_back(of_class.precision());
    lists["recall"].push_back(of_class.recall());
    lists["f1"].push_back(of_class.f1());
    lists["support"].push_back(of_class.support);
  }
  return lists;
}

nlohmann::ordered_json to_json(const EvaluationRecord& r) {
  nlohmann::ordered_json event = {
      {"event", "eval"}, {"step", r.step}, {"epoch", r.epoch}, {"samples", r.samples}};
  put_metrics(event, "eval_", r.metrics);
  if (!r.classes.empty() && r.classes.size() <= kMaxRecordedClasses) {
    event["per_class"] = per_class(r.classes);
  }
  if (r.bad_records > 0) event["bad_records"] = r.bad_records;
  event["seconds"] = r.seconds;
  return event;
}

nlohmann::ordered_json to_json(const CheckpointRecord& r) {
  return {{"event", kCheckpoint},
          {"step", r.step},
          {"epoch", r.epoch},
          {"path", r.path},
          {"best", r.best},
          {"seconds", r.seconds},
          {"stall_seconds", r.stall_seconds}};
}

nlohmann::ordered_json to_json(const RanksRecord& r) {
  nlohmann::ordered_json event = {{"event", "ranks"}, {"step", r.step}, {"lag_ms", r.lag_ms}};
  if (!r.stage_utilization.empty()) event["stage_utilization"] = r.stage_utilization;
  return event;
}

nlohmann::ordered_json to_json(const NotFiniteRecord& r) {
  return {{"event", "not_finite"}, {"step", r.step}, {"epoch", r.epoch}, {"what", r.what}};
}

nlohmann::ordered_json to_json(const LossSpikeRecord& r) {
  return {{"event", "loss_spike"},
          {"step", r.step},
          {"epoch", r.epoch},
          {"train_loss", r.train_loss},
          {"mean_before", r.mean_before},
          {"deviations", r.stddevs}};
}

// Records only the time that they took; TensorBoardSink writes the histograms.
nlohmann::ordered_json to_json(const HistogramsRecord& r) {
  return {{"event", "histograms"},
          {"step", r.step},
          {"epoch", r.epoch},
          {"stall_seconds", r.stall_seconds}};
}

nlohmann::ordered_json to_json(const EndRecord& r) {
  nlohmann::ordered_json event = {{"event", "end"},
                                  {"step", r.step},
                                  {"epoch", r.epoch},
                                  {"status", r.status},
                                  {"ended_by", r.ended_by}};
  if (!r.reason.empty()) event["reason"] = r.reason;
  return event;
}

}  // namespace

JsonlSink::JsonlSink(const std::filesystem::path& path, int64_t keep_through_step)
    : file_(path, bytes_through_step(path, keep_through_step, parse_line)) {}

bool JsonlSink::wants(const MetricsRecord& record) const {
  return !is_one_of<SamplesRecord, ConsoleText, LogLine>(record);
}

void JsonlSink::write(const MetricsEvent& event) {
  std::string& text = file_.buffer();
  std::visit(
      Overloaded{[&](const StepRecord& record) { append(record, text); },
                 [](const SamplesRecord&) {}, [](const ConsoleText&) {}, [](const LogLine&) {},
                 [&](const auto& record) { text += json_text(to_json(record)); }},
      event.record);
  text += '\n';
}

}  // namespace trireme::train
