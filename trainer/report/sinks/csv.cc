#include "trainer/report/sinks/csv.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "trainer/base/json.h"

namespace trireme::train {
namespace {

constexpr const char* kStepColumns =
    "step,epoch,train_loss,learning_rate,samples_per_second,step_ms,data_wait_ms,exposed_comm_ms,"
    "forward_ms,backward_ms,update_ms,comm_ms,loss_scale,skipped_steps,idle_ms";

std::string evaluation_columns() {
  std::string columns = "step,epoch,samples";
  for (const MetricInfo& metric : kEvaluationMetrics) columns += fmt::format(",{}", metric.name);
  return columns + ",seconds";
}

// A row begins with its step. The header row counts as step 0.
std::optional<LineStep> parse_row(std::string_view row) {
  int64_t step = 0;
  const auto result = std::from_chars(row.data(), row.data() + row.size(), step);
  const bool number = result.ec == std::errc() && result.ptr != row.data() + row.size();
  if (number && *result.ptr == ',') return LineStep{step};
  return row.starts_with("step,") ? std::optional(LineStep{}) : std::nullopt;
}

// Opens a table. A file with other columns, written by another version, is overwritten.
std::unique_ptr<AppendedFile> open_table(const std::filesystem::path& path,
                                         int64_t keep_through_step, const std::string& columns) {
  std::string there;
  std::ifstream file(path);
  std::getline(file, there);
  const size_t keep = there == columns ? bytes_through_step(path, keep_through_step, parse_row) : 0;
  auto table = std::make_unique<AppendedFile>(path, keep);
  if (keep == 0) table->buffer() = fmt::format("{}\n", columns);
  return table;
}

// Returns the text of a cell: empty for no value; infinities and NaN as in JSON, but unquoted.
std::string cell(std::optional<double> value) {
  return value ? fmt::format("{}", PlainNumber{*value}) : "";
}

}  // namespace

CsvSink::CsvSink(std::filesystem::path run_folder, int64_t keep_through_step)
    : folder_(std::move(run_folder)), keep_through_step_(keep_through_step) {}

bool CsvSink::wants(const MetricsRecord& record) const {
  return is_one_of<StepRecord, EvaluationRecord>(record);
}

void CsvSink::open() {
  steps_ = open_table(folder_ / "steps.csv", keep_through_step_, kStepColumns);
  evaluations_ = open_table(folder_ / "evaluations.csv", keep_through_step_, evaluation_columns());
}

void CsvSink::write(const MetricsEvent& event) {
  if (const auto* r = std::get_if<StepRecord>(&event.record)) {
    fmt::format_to(std::back_inserter(steps_->buffer()),
                   "{},{},{:.9g},{:.9g},{:.6g},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},"
                   "{},{},{}\n",
                   r->step, r->epoch, PlainNumber{r->train_loss}, PlainNumber{r->learning_rate},
                   PlainNumber{r->samples_per_second}, PlainNumber{r->step_ms},
                   PlainNumber{r->data_wait_ms}, PlainNumber{r->exposed_comm_ms},
                   PlainNumber{r->forward_ms}, PlainNumber{r->backward_ms},
                   PlainNumber{r->update_ms}, PlainNumber{r->comm_ms}, cell(r->loss_scale),
                   r->skipped_steps, cell(r->idle_ms));
  } else if (const auto* e = std::get_if<EvaluationRecord>(&event.record)) {
    std::string& row = evaluations_->buffer();
    fmt::format_to(std::back_inserter(row), "{},{},{}", e->step, e->epoch, e->samples);
    for (const MetricInfo& metric : kEvaluationMetrics) {
      row += "," + cell(e->metrics.*metric.value);
    }
    fmt::format_to(std::back_inserter(row), ",{:.4f}\n", PlainNumber{e->seconds});
  }
}

void CsvSink::flush() {
  steps_->flush();
  evaluations_->flush();
}

}  // namespace trireme::train
