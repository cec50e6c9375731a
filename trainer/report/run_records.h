// What a run has left in its folder, read back: for `trireme report` and `trireme runs`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/config.pb.h"
#include "trainer/report/metrics.h"

namespace trireme::train {

enum class RunStatus {
  kRunning,  // its folder is locked
  kDone,
  kStopped,  // by a signal, saved
  kFailed,   // it told why
  kDead,     // it ended without a word: killed, or its machine lost
};
std::string to_string(RunStatus status);  // "running", "done", ...

// A number of metrics.jsonl, which need not be finite; nothing where it was not recorded.
using Recorded = std::optional<double>;

// One step record. Milliseconds and samples/s are means over the steps since the record before.
struct StepPoint {
  int64_t step = 0;
  int64_t epoch = 0;   // in which the step was, from 0
  double seconds = 0;  // that the run had trained, evaluated and waited for saves by then
  Recorded train_loss;
  Recorded learning_rate;
  Recorded samples_per_second;
  Recorded step_ms;
  Recorded data_wait_ms;
  Recorded exposed_comm_ms;
  Recorded forward_ms;
  Recorded backward_ms;
  Recorded update_ms;
  Recorded gpu_load_percent;
};

struct EvalPoint {
  int64_t step = 0;
  int64_t epoch = 0;   // completed
  double seconds = 0;  // as in StepPoint
  int64_t samples = 0;
  EvaluationMetrics metrics = {};  // those that were recorded
  Recorded took = {};              // seconds
};

// Mean milliseconds of a step by which the others waited for each rank.
struct LagPoint {
  int64_t step = 0;
  std::vector<Recorded> ms;  // by rank
};

// From where training went on, and with which batch.
struct StartPoint {
  int64_t step = 0;
  int64_t epoch = 0;              // completed
  int64_t position = 0;           // samples of the current epoch that were used
  int64_t samples_per_epoch = 0;  // 0: not recorded, in version 0.1
  int64_t global_batch = 0;
  int64_t steps_per_epoch = 0;
};

// Everything else that a run told: "start", "checkpoint", "not_finite", "loss_spike", "end", and
// kinds that come later.
struct RunEvent {
  std::string kind;
  int64_t step = 0;
  nlohmann::json fields;  // the whole line
};

struct RunRecords {
  std::filesystem::path folder;
  RunStatus status = RunStatus::kDead;
  std::string ending;                       // why it failed; who runs it
  std::filesystem::file_time_type touched;  // when metrics.jsonl was last written

  std::string config_text;  // as in config.txtpb
  RunConfig config;

  // Of the latest start; zeros in a run that has not come so far.
  std::string model;
  std::string precision;
  int64_t parameters = 0;
  int ranks = 0;
  int64_t global_batch = 0;
  int64_t steps_per_epoch = 0;
  int64_t planned_steps = 0;

  std::vector<StartPoint> starts;  // steps ascend, here and below
  std::vector<StepPoint> steps;
  std::vector<EvalPoint> evaluations;
  std::vector<LagPoint> lags;
  std::vector<RunEvent> events;

  std::optional<Summary> summary;  // as of its end
  nlohmann::json environment;      // environment.json; null where there is none
  nlohmann::json evaluation;       // evaluation.json; null where there is none
  // What could not be read, for people: damaged lines and files. A line that is still being written
  // is none.
  std::vector<std::string> problems;

  // The first evaluation of the highest score (see score_of); null where none has one.
  const EvalPoint* best() const;
  Recorded samples_per_second() const;  // of the summary, else the mean of what is recorded
  // Epochs that a run which has done so many steps has completed, and the part of the current one;
  // 0 in a run that has not started.
  double epochs_at(int64_t step) const;
};

// Reads a run that has ended or goes on. Throws ConfigError where the folder is none of a run's,
// DataError where its files cannot be opened; what is damaged or missing is left out and told in
// `problems`.
RunRecords read_run(const std::filesystem::path& folder);

// Whether the folder holds a run: a config.txtpb or a metrics.jsonl.
bool is_run_folder(const std::filesystem::path& folder);

// metrics.jsonl as text: fills in steps, evaluations, lags, events, what the latest start says, and
// problems. Takes any text.
void read_metrics(std::string_view text, RunRecords& records);
// Nothing where the text is no summary.
std::optional<Summary> parse_summary(const std::string& text);

}  // namespace trireme::train
