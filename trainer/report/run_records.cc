#include "trainer/report/run_records.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "trainer/base/json.h"
#include "trainer/config/config_text.h"
#include "trainer/config/monitor.h"
#include "trainer/config/run_folder.h"
#include "trainer/optimizer/epochs.h"
#include "trainer/report/record_fields.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Size limits. An evaluation.json with its images is far smaller, and so are the records of ten
// million steps.
constexpr uintmax_t kMaxFileBytes = 64 << 20;
constexpr uintmax_t kMaxMetricsBytes = uintmax_t{4} << 30;
constexpr auto kStaleAfter = std::chrono::minutes(2);

// Returns the text of a file of the run, or nullopt if it does not exist or cannot be used; the
// latter is added to the problems.
std::optional<std::string> read_if_exists(const fs::path& path, RunRecords& records,
                                          uintmax_t max_bytes = kMaxFileBytes) {
  std::error_code none;
  if (!fs::exists(path, none)) return std::nullopt;
  if (!fs::is_regular_file(path, none)) {
    records.problems.push_back(path.filename().string() + ": is not a regular file");
    return std::nullopt;
  }
  if (fs::file_size(path, none) > max_bytes) {
    records.problems.push_back(
        fmt::format("{}: skipped: larger than {} MiB", path.filename().string(), max_bytes >> 20));
    return std::nullopt;
  }
  return read_text(path);
}

Json read_json(const fs::path& path, RunRecords& records) {
  const auto content = read_if_exists(path, records);
  if (!content) return {};
  Json value = parse_json(*content, /*throws=*/false);
  if (value.is_object()) return value;
  records.problems.push_back(path.filename().string() + ": skipped: not a valid JSON object");
  return {};
}

void read_config(const RunFolder& folder, RunRecords& records) {
  const auto content = read_if_exists(folder.config(), records);
  if (!content) {
    records.problems.emplace_back("config.txtpb: the file is missing");
    return;
  }
  records.config_text = *content;
  try {
    parse_text(*content, "config.txtpb", records.config);
  } catch (const ConfigError& error) {
    records.problems.emplace_back(error.what());
  }
}

// Returns the text of the run's lock file, which names the process that holds the lock, or nullopt
// if nobody does. On file systems without locks, a run counts as alive while it still writes.
std::optional<std::string> lock_holder(const RunRecords& records) {
  const fs::path path = records.folder / ".lock";
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // it may be a pipe
  if (file < 0) return std::nullopt;
  const bool got = ::flock(file, LOCK_SH | LOCK_NB) == 0;
  const int reason = errno;
  ::close(file);
  if (got) return std::nullopt;
  if (reason != EWOULDBLOCK &&
      fs::file_time_type::clock::now() - records.last_written > kStaleAfter) {
    return std::nullopt;
  }
  return read_text(path);
}

// Returns the failure message at the end of a rank's log, or an empty string if there is none.
// Failure messages are the only lines without a timestamp.
std::string failure_in(const fs::path& log) {
  constexpr uintmax_t kTail = 64 << 10;
  std::error_code none;
  if (!fs::is_regular_file(log, none)) return "";
  const uintmax_t size = fs::file_size(log, none);
  std::string tail(std::min(size, kTail), '\0');
  std::ifstream file(log, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(size - tail.size()));
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  tail.resize(static_cast<size_t>(file.gcount()));
  std::string last;
  std::istringstream lines(tail);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
  }
  const bool timed = last.size() > 20 && last[4] == '-' && last[10] == 'T' && last[19] == 'Z';
  return timed ? "" : last;
}

std::string failure_message(const RunFolder& folder) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder.path / "log", none)) {
    if (!entry.path().filename().string().starts_with("rank-")) continue;
    if (std::string message = failure_in(entry.path()); !message.empty()) return message;
  }
  return "";
}

RunStatus status_by_name(const std::string& name) {
  if (name == "done") return RunStatus::kDone;
  return name == "stopped" ? RunStatus::kStopped : RunStatus::kFailed;
}

void set_status(RunRecords& records) {
  if (const auto holder = lock_holder(records)) {
    records.status = RunStatus::kRunning;
    records.status_detail = *holder;
    return;
  }
  if (records.summary) {
    records.status = status_by_name(records.summary->status);
    return;
  }
  const RunEvent* last = records.events.empty() ? nullptr : &records.events.back();
  if (last && last->kind == "end") {
    records.status = status_by_name(text_field(last->fields, "status"));
    return;
  }
  records.status_detail = failure_message({records.folder});
  const bool continued = !records.steps.empty() && last && records.steps.back().step > last->step;
  if (records.status_detail.empty() && last && last->kind == "not_finite" && !continued) {
    records.status_detail = text_field(last->fields, "what");
  }
  records.status = records.status_detail.empty() ? RunStatus::kDead : RunStatus::kFailed;
}

}  // namespace

std::string to_string(RunStatus status) {
  switch (status) {
    case RunStatus::kRunning:
      return "running";
    case RunStatus::kDone:
      return "done";
    case RunStatus::kStopped:
      return "stopped";
    case RunStatus::kFailed:
      return "failed";
    case RunStatus::kDead:
      return "dead";
  }
  return "";
}

std::string RunRecords::best_by() const {
  if (evaluations.empty()) return "";
  const EvaluationMetrics& last = evaluations.back().metrics;
  return best_metric(config,
                     {.classes = last.accuracy ? 1 : 0, .tokens = last.perplexity.has_value()});
}

const EvalPoint* RunRecords::best() const {
  const EvalPoint* best = nullptr;
  std::optional<double> highest;
  const std::string metric = best_by();
  for (const EvalPoint& point : evaluations) {
    const auto score = score_of(metric, point.metrics);
    if (score > highest) {
      highest = score;
      best = &point;
    }
  }
  return best;
}

Recorded RunRecords::samples_per_second() const {
  if (summary) return summary->samples_per_second;
  double samples = 0;
  double seconds = 0;
  for (const StepPoint& point : steps) {
    // All records stand for the same number of steps, except the last.
    const double took = point.step_ms.value_or(NAN) / 1000;
    const double rate = point.samples_per_second.value_or(NAN);
    if (!std::isfinite(took) || !std::isfinite(rate)) continue;
    samples += rate * took;
    seconds += took;
  }
  return seconds > 0 ? Recorded(samples / seconds) : std::nullopt;
}

Recorded RunRecords::tokens_per_second() const {
  const Recorded samples = samples_per_second();
  if (!samples || tokens_per_sample == 0) return std::nullopt;
  return *samples * static_cast<double>(tokens_per_sample);
}

double RunRecords::epochs_at(int64_t step) const {
  const auto after = std::ranges::upper_bound(starts, step, {}, &StartPoint::step);
  if (after == starts.begin()) return 0;
  const StartPoint& start = *std::prev(after);
  if (start.samples_per_epoch == 0 || start.global_batch == 0) {
    return start.steps_per_epoch == 0
               ? 0
               : static_cast<double>(step) / static_cast<double>(start.steps_per_epoch);
  }
  const Epochs epochs(start.samples_per_epoch, start.global_batch);
  return epochs.in_epochs(epochs.after({start.epoch, start.position}, step - start.step));
}

std::optional<EvalPoint> best_evaluation(const RunConfig& config, const fs::path& file,
                                         int64_t through_step) {
  RunRecords records;
  records.config = config;
  const auto content = read_if_exists(file, records, kMaxMetricsBytes);
  if (content) read_metrics(*content, records);
  std::erase_if(records.evaluations,
                [&](const EvalPoint& point) { return point.step > through_step; });
  const EvalPoint* const best = records.best();
  return best ? std::optional(*best) : std::nullopt;
}

bool is_run_folder(const fs::path& folder) {
  std::error_code none;
  const RunFolder run{folder};
  return fs::is_regular_file(run.config(), none) || fs::is_regular_file(run.metrics(), none);
}

RunRecords read_run(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) throw ConfigError(folder.string(), "no such run");
  if (!is_run_folder(folder)) {
    throw ConfigError(folder.string(),
                      "not the folder of a run: it has neither a config.txtpb nor a metrics.jsonl");
  }
  RunRecords records;
  const RunFolder run{folder};
  records.folder = folder;
  read_config(run, records);
  if (const auto content = read_if_exists(run.metrics(), records, kMaxMetricsBytes)) {
    records.last_written = fs::last_write_time(run.metrics(), none);
    read_metrics(*content, records);
  }
  if (const auto content = read_if_exists(run.summary(), records)) {
    records.summary = parse_summary(*content);
    if (!records.summary)
      records.problems.emplace_back("summary.json: skipped: not a valid summary");
  }
  records.environment = read_json(run.environment(), records);
  records.evaluation = read_json(run.evaluation(), records);
  set_status(records);
  return records;
}

}  // namespace trireme::train
