#include "trainer/report/run_records.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>
#include <utility>

#include "core/error.h"
#include "trainer/base/file.h"
#include "trainer/base/json.h"
#include "trainer/config/config_text.h"
#include "trainer/config/run_folder.h"
#include "trainer/optimizer/epochs.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Longest file read besides metrics.jsonl: evaluation.json with its pictures is far below.
constexpr uintmax_t kLargest = 64 << 20;
constexpr int kDeepest = 16;
constexpr size_t kProblemsTold = 5;
constexpr auto kSignOfLife = std::chrono::minutes(2);

const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

Recorded number(const Json& object, const char* key) {
  const Json* value = find(object, key);
  return value ? as_number(*value) : std::nullopt;
}

// 0 where it is no whole number that counts something. What is larger than a run can be is cut off,
// so that sums stay in range.
int64_t count(const Json& object, const char* key) {
  constexpr int64_t kMax = int64_t{1} << 53;
  const Json* value = find(object, key);
  if (!value || !value->is_number_integer()) return 0;
  if (value->is_number_unsigned() && !std::in_range<int64_t>(value->get<uint64_t>())) return 0;
  return std::clamp<int64_t>(value->get<int64_t>(), 0, kMax);
}

std::string text(const Json& object, const char* key) {
  const Json* value = find(object, key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

// Fills in the records line by line.
class MetricsReader {
 public:
  explicit MetricsReader(RunRecords& records) : records_(records) {}

  void line(std::string_view line, int64_t line_number) {
    const Json fields = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const Json* kind = fields.is_object() ? find(fields, "event") : nullptr;
    if (!kind || !kind->is_string()) return damaged(line_number);
    const auto& name = kind->get_ref<const std::string&>();
    if (name == "step") return step(fields);
    if (name == "eval") return evaluation(fields);
    if (name == "ranks") return lag(fields);
    if (name == "start") start(fields);
    if (name == "checkpoint") wait(number(fields, "stall_seconds"));
    records_.events.push_back({name, count(fields, "step"), fields});
  }

  void end() {
    if (damaged_ <= kProblemsTold) return;
    records_.problems.push_back(
        fmt::format("metrics.jsonl: {} more damaged lines", damaged_ - kProblemsTold));
  }

 private:
  void damaged(int64_t line_number) {
    if (++damaged_ > kProblemsTold) return;
    records_.problems.push_back(
        fmt::format("metrics.jsonl: line {} is damaged and left out", line_number));
  }

  void wait(Recorded seconds) {
    if (seconds && std::isfinite(*seconds) && *seconds > 0) seconds_ += *seconds;
  }

  // A run that went on from a checkpoint has done some steps once more.
  template <class Point>
  static void add(std::vector<Point>& points, Point point) {
    while (!points.empty() && points.back().step >= point.step) points.pop_back();
    points.push_back(std::move(point));
  }

  void step(const Json& fields) {
    StepPoint point;
    point.step = count(fields, "step");
    point.epoch = count(fields, "epoch");
    point.train_loss = number(fields, "train_loss");
    point.learning_rate = number(fields, "learning_rate");
    point.samples_per_second = number(fields, "samples_per_second");
    point.step_ms = number(fields, "step_ms");
    point.data_wait_ms = number(fields, "data_wait_ms");
    point.exposed_comm_ms = number(fields, "exposed_comm_ms");
    point.forward_ms = number(fields, "forward_ms");
    point.backward_ms = number(fields, "backward_ms");
    point.update_ms = number(fields, "update_ms");
    point.gpu_load_percent = number(fields, "gpu_load_percent");
    wait(point.step_ms.value_or(0) / 1000 * static_cast<double>(point.step - step_));
    step_ = point.step;
    point.seconds = seconds_;
    add(records_.steps, point);
  }

  void evaluation(const Json& fields) {
    EvalPoint point;
    point.step = count(fields, "step");
    point.epoch = count(fields, "epoch");
    point.samples = count(fields, "samples");
    point.loss = number(fields, "eval_loss");
    point.accuracy = number(fields, "eval_accuracy");
    point.top5 = number(fields, "eval_top5");
    point.took = number(fields, "seconds");
    wait(point.took);
    point.seconds = seconds_;
    add(records_.evaluations, point);
  }

  void lag(const Json& fields) {
    LagPoint point;
    point.step = count(fields, "step");
    const Json* ranks = find(fields, "lag_ms");
    if (!ranks || !ranks->is_array()) return;
    for (const Json& ms : *ranks) point.ms.push_back(as_number(ms));
    add(records_.lags, std::move(point));
  }

  void start(const Json& fields) {
    StartPoint point;
    point.step = step_ = count(fields, "step");
    point.epoch = count(fields, "epoch");
    point.position = count(fields, "position");
    point.samples_per_epoch = count(fields, "samples_per_epoch");
    point.global_batch = count(fields, "batch_global");
    point.steps_per_epoch = count(fields, "steps_per_epoch");
    records_.global_batch = point.global_batch;
    records_.steps_per_epoch = point.steps_per_epoch;
    add(records_.starts, point);
    records_.model = text(fields, "model");
    records_.precision = text(fields, "precision");
    records_.parameters = count(fields, "parameters");
    records_.ranks = static_cast<int>(std::min<int64_t>(count(fields, "ranks"), 1 << 20));
    records_.planned_steps = count(fields, "total_steps");
  }

  RunRecords& records_;
  int64_t step_ = 0;
  double seconds_ = 0;
  size_t damaged_ = 0;
};

// The text of a file of the run, if it is there; damage is a problem.
std::optional<std::string> read_if_there(const fs::path& path, RunRecords& records) {
  std::error_code none;
  if (!fs::exists(path, none)) return std::nullopt;
  if (!fs::is_regular_file(path, none)) {
    records.problems.push_back(path.filename().string() + ": is not a regular file");
    return std::nullopt;
  }
  if (fs::file_size(path, none) > kLargest) {
    records.problems.push_back(path.filename().string() + ": too large to be what it is called");
    return std::nullopt;
  }
  return read_text(path);
}

Json read_json(const fs::path& path, RunRecords& records) {
  const auto content = read_if_there(path, records);
  if (!content) return {};
  // What is written out again must not be nested without end.
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth < kDeepest; };
  Json value = Json::parse(*content, shallow, /*allow_exceptions=*/false);
  if (value.is_object()) return value;
  records.problems.push_back(path.filename().string() + ": damaged and left out");
  return {};
}

void read_config(const RunFolder& folder, RunRecords& records) {
  const auto content = read_if_there(folder.config(), records);
  if (!content) {
    records.problems.emplace_back("config.txtpb: missing");
    return;
  }
  records.config_text = *content;
  try {
    parse_text(*content, "config.txtpb", records.config);
  } catch (const ConfigError& error) {
    records.problems.emplace_back(error.what());
  }
}

// Who holds the run's lock, if anybody does. Where there are no locks, a run lives as long as it
// writes.
std::optional<std::string> holder(const RunRecords& records) {
  const fs::path path = records.folder / ".lock";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  const bool got = ::flock(file, LOCK_SH | LOCK_NB) == 0;
  const int reason = errno;
  ::close(file);
  if (got) return std::nullopt;
  if (reason != EWOULDBLOCK && fs::file_time_type::clock::now() - records.touched > kSignOfLife) {
    return std::nullopt;
  }
  return read_text(path);
}

// What the survivors of a failure wrote last: the one kind of line without a time. Empty: none.
std::string verdict_in(const fs::path& log) {
  constexpr std::streamoff kTail = 64 << 10;
  std::ifstream file(log, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  const bool timed = last.size() > 20 && last[4] == '-' && last[10] == 'T' && last[19] == 'Z';
  return timed ? "" : last;
}

std::string verdict(const RunFolder& folder) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder.path / "log", none)) {
    if (!entry.path().filename().string().starts_with("rank-")) continue;
    if (std::string said = verdict_in(entry.path()); !said.empty()) return said;
  }
  return "";
}

RunStatus status_by_name(const std::string& name) {
  if (name == "done") return RunStatus::kDone;
  return name == "stopped" ? RunStatus::kStopped : RunStatus::kFailed;
}

void judge(RunRecords& records) {
  if (const auto who = holder(records)) {
    records.status = RunStatus::kRunning;
    records.ending = *who;
    return;
  }
  if (records.summary) {
    records.status = status_by_name(records.summary->status);
    return;
  }
  const RunEvent* last = records.events.empty() ? nullptr : &records.events.back();
  if (last && last->kind == "end") {
    records.status = status_by_name(text(last->fields, "status"));
    return;
  }
  records.ending = verdict({records.folder});
  const bool goes_on = !records.steps.empty() && last && records.steps.back().step > last->step;
  if (records.ending.empty() && last && last->kind == "not_finite" && !goes_on) {
    records.ending = text(last->fields, "what");
  }
  records.status = records.ending.empty() ? RunStatus::kDead : RunStatus::kFailed;
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

const EvalPoint* RunRecords::best() const {
  const EvalPoint* best = nullptr;
  std::optional<double> highest;
  for (const EvalPoint& point : evaluations) {
    const auto score = score_of(point.accuracy, point.loss.value_or(NAN));
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
    // Records stand for as many steps as one another, but the last.
    const double took = point.step_ms.value_or(NAN) / 1000;
    const double rate = point.samples_per_second.value_or(NAN);
    if (!std::isfinite(took) || !std::isfinite(rate)) continue;
    samples += rate * took;
    seconds += took;
  }
  return seconds > 0 ? Recorded(samples / seconds) : std::nullopt;
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

void read_metrics(std::string_view content, RunRecords& records) {
  MetricsReader reader(records);
  int64_t line_number = 0;
  while (!content.empty()) {
    const size_t end = content.find('\n');
    if (end == std::string_view::npos) break;  // it is still being written, or was cut by a crash
    reader.line(content.substr(0, end), ++line_number);
    content.remove_prefix(end + 1);
  }
  reader.end();
}

std::optional<Summary> parse_summary(const std::string& content) {
  const Json fields = Json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object() || text(fields, "status").empty()) return std::nullopt;
  const auto or_zero = [&](const char* key) { return number(fields, key).value_or(0); };
  Summary summary;
  summary.status = text(fields, "status");
  summary.ranks = static_cast<int>(std::min<int64_t>(count(fields, "ranks"), 1 << 20));
  summary.precision = text(fields, "precision");
  summary.epochs = count(fields, "epochs");
  summary.steps = count(fields, "steps");
  summary.skipped_steps = count(fields, "skipped_steps");
  summary.samples_per_second = or_zero("samples_per_second");
  summary.wall_seconds = or_zero("wall_seconds");
  summary.train_loss = or_zero("train_loss");
  summary.eval_loss = number(fields, "eval_loss");
  summary.eval_accuracy = number(fields, "eval_accuracy");
  summary.eval_top5 = number(fields, "eval_top5");
  summary.data_wait_fraction = or_zero("data_wait_fraction");
  summary.exposed_comm_fraction = or_zero("exposed_comm_fraction");
  summary.bad_records = count(fields, "bad_records");
  summary.peak_memory_bytes = count(fields, "peak_memory_bytes");
  summary.saves_left_out = count(fields, "saves_left_out");
  summary.seconds_to_first_step = or_zero("seconds_to_first_step");
  return summary;
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
    throw ConfigError(
        folder.string(),
        "neither a config.txtpb nor a metrics.jsonl: this is not the folder of a run");
  }
  RunRecords records;
  const RunFolder run{folder};
  records.folder = folder;
  read_config(run, records);
  if (fs::exists(run.metrics(), none)) {
    records.touched = fs::last_write_time(run.metrics(), none);
    read_metrics(read_text(run.metrics()), records);
  }
  if (const auto content = read_if_there(run.summary(), records)) {
    records.summary = parse_summary(*content);
    if (!records.summary) records.problems.emplace_back("summary.json: damaged and left out");
  }
  records.environment = read_json(run.environment(), records);
  records.evaluation = read_json(run.evaluation(), records);
  judge(records);
  return records;
}

}  // namespace trireme
