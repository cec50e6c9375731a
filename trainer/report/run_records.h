// Reads back the files in a run's folder, for `trireme report` and `trireme runs`.
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
  kRunning,  // a process holds the lock of the folder
  kDone,
  kStopped,  // by a signal, after writing a checkpoint
  kFailed,   // ended with an error message
  kDead,     // ended without a message: it was killed, or its machine was lost
};
std::string to_string(RunStatus status);  // "running", "done", ...

// A number in metrics.jsonl, which may be infinite or NaN; nullopt if it was not recorded.
using Recorded = std::optional<double>;

// One step record. Milliseconds and samples/s are means over the steps since the previous record.
struct StepPoint {
  int64_t step = 0;
  int64_t epoch = 0;   // the epoch of this step, from 0
  double seconds = 0;  // spent training, evaluating and blocked by checkpoints until this step
  Recorded train_loss;
  Recorded learning_rate;
  Recorded samples_per_second;
  Recorded model_flops_utilization;
  Recorded padding_share;
  Recorded step_ms;
  Recorded data_wait_ms;
  Recorded exposed_comm_ms;
  Recorded forward_ms;
  Recorded backward_ms;
  Recorded update_ms;
  Recorded idle_ms;  // only with pipeline stages
  Recorded gpu_load_percent;
};

struct EvalPoint {
  int64_t step = 0;
  int64_t epoch = 0;   // epochs completed
  double seconds = 0;  // as in StepPoint
  int64_t samples = 0;
  EvaluationMetrics metrics = {};  // those that were recorded
  Recorded took = {};              // seconds
};

// The lag of each rank, as in RanksRecord.
struct LagPoint {
  int64_t step = 0;
  std::vector<Recorded> ms;  // by rank
  std::vector<Recorded> stage_utilization = {};
};

// A start or resume of the run.
struct StartPoint {
  int64_t step = 0;
  int64_t epoch = 0;              // epochs completed before
  int64_t position = 0;           // samples of the current epoch used before
  int64_t samples_per_epoch = 0;  // 0 if not recorded (version 0.1)
  int64_t global_batch = 0;
  int64_t steps_per_epoch = 0;
};

// Any other record: "start", "checkpoint", "not_finite", "loss_spike", "end", and kinds that later
// versions may add.
struct RunEvent {
  std::string kind;
  int64_t step = 0;
  nlohmann::json fields;  // the complete line
};

struct RunRecords {
  std::filesystem::path folder;
  RunStatus status = RunStatus::kDead;
  std::string status_detail;  // why the run failed, or the process that is running it
  std::filesystem::file_time_type last_written;  // of metrics.jsonl

  std::string config_text;  // as in config.txtpb
  RunConfig config;

  // From the latest start record; empty and 0 if there is none yet.
  std::string model;
  std::string precision;
  int64_t parameters = 0;
  int ranks = 0;
  int64_t global_batch = 0;
  int64_t tokens_per_sample = 0;  // 0 if samples do not consist of tokens
  int64_t steps_per_epoch = 0;
  int64_t planned_steps = 0;

  std::vector<StartPoint> starts;  // in ascending order of steps, like the lists below
  std::vector<StepPoint> steps;
  std::vector<EvalPoint> evaluations;
  std::vector<LagPoint> lags;
  std::vector<RunEvent> events;

  std::optional<Summary> summary;  // summary.json, written when the run ends
  nlohmann::json environment;      // environment.json; null if there is none
  nlohmann::json evaluation;       // evaluation.json; null if there is none
  // Messages about damaged or missing files and damaged lines. A last line that is still being
  // written is not a problem.
  std::vector<std::string> problems;

  // Returns the evaluation with the highest score (see score_of), the first of equals, or null if
  // none has a score.
  const EvalPoint* best() const;
  // Returns the metric that best() compares, see best_metric().
  std::string best_by() const;
  // Returns the throughput in the summary, or else the mean of the step records.
  Recorded samples_per_second() const;
  Recorded tokens_per_second() const;  // nullopt if samples do not consist of tokens
  // Returns the number of epochs, with a fraction, done after `step` steps, or 0 if the run has not
  // started.
  double epochs_at(int64_t step) const;
};

// Reads a run that has ended or is still running. Throws ConfigError if the folder is not a run's
// folder and DataError if a file cannot be opened. Skips damaged or missing parts and reports them
// in `problems`.
RunRecords read_run(const std::filesystem::path& folder);

// Returns the best of the evaluations up to this step in a metrics.jsonl, as RunRecords::best.
// Skips damaged lines. Returns nullopt if there is no such file. Throws DataError if it cannot be
// read.
std::optional<EvalPoint> best_evaluation(const RunConfig& config, const std::filesystem::path& file,
                                         int64_t through_step);

// Returns true if the folder holds a run: a config.txtpb or a metrics.jsonl.
bool is_run_folder(const std::filesystem::path& folder);

// Parses the text of metrics.jsonl into the steps, evaluations, lags, events, the fields of the
// latest start, and the problems of `records`. Accepts any text.
void read_metrics(std::string_view text, RunRecords& records);
// Returns nullopt if the text is not a summary.
std::optional<Summary> parse_summary(const std::string& text);

}  // namespace trireme::train
