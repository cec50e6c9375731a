// The records that a run reports to its sinks (trainer/report/sinks), and summary.json.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"
#include "trainer/base/evaluation_metrics.h"

namespace trireme::train {

// The value of one configuration field.
using Hyperparameter = std::variant<bool, double, std::string>;

// The run starts or resumes.
struct StartRecord {
  int64_t step = 0;      // updates done before this start
  int64_t epoch = 0;     // epochs completed before this start
  int64_t position = 0;  // samples of the current epoch used before this start
  std::string version;
  std::string model;
  int64_t parameters = 0;
  int ranks = 1;
  std::string precision;
  int64_t global_batch = 0;
  int64_t tokens_per_sample = 0;  // 0 if samples do not consist of tokens
  int64_t samples_per_epoch = 0;
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;
  int64_t bad_records = 0;
  std::optional<std::string> resumed_from;
  std::string run_dir;
  std::string config;  // protobuf text format
  std::map<std::string, Hyperparameter> hyperparameters;
  Predictions predictions;
};

// Times are means over the steps since the previous record.
struct StepRecord {
  int64_t step = 0;   // updates done, including this one
  int64_t epoch = 0;  // the epoch of this step, from 0
  float train_loss = 0;
  double learning_rate = 0;
  double samples_per_second = 0;
  std::optional<double> tokens_per_second;  // set if samples consist of tokens
  // The time that the floating-point operations would take at the peak rate of all ranks, divided
  // by the time of the steps. Set if the peak is known.
  std::optional<double> model_flops_utilization;
  // The share of padding in the tokens of the batches. Set if samples are texts of any length.
  std::optional<double> padding_share;
  double step_ms = 0;
  double data_wait_ms = 0;
  double exposed_comm_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double update_ms = 0;
  double comm_ms = 0;  // time of all all-reduces, overlapped with computation or exposed
  std::optional<double> idle_ms = {};  // waiting for other pipeline stages; set if there are any
  int64_t samples_total = 0;           // trained on since this process started
  std::optional<uint64_t> parameter_checksum;
  std::optional<float> loss_scale;     // after the step; set with FP16 only
  int64_t skipped_steps = 0;           // updates skipped since the run began
  std::optional<int64_t> bad_records;  // skipped so far; set if more than in the previous record
  std::optional<DeviceLoad> load;      // load of this rank's GPU, since the previous record
};

struct EvaluationRecord {
  int64_t step = 0;
  int64_t epoch = 0;  // epochs completed
  int64_t samples = 0;
  EvaluationMetrics metrics = {};
  std::vector<ClassScores> classes = {};  // as in Evaluation
  int64_t bad_records = 0;
  double seconds = 0;
};

struct CheckpointRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  std::string path = {};
  bool best = false;
  double seconds = 0;
  double stall_seconds = 0;  // during which training was blocked
};

// The lag of each rank: the mean time per step that the other ranks waited in all-reduces and for
// other pipeline stages, minus the time that this rank waited itself; at least 0.
struct RanksRecord {
  int64_t step = 0;
  std::vector<double> lag_ms;  // by rank
  // The part of the time in which each pipeline stage does not wait for others; empty if there is
  // one stage.
  std::vector<double> stage_utilization;
};

// The update of this step was skipped because the loss or a gradient was not finite.
struct NotFiniteRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  std::string what;  // which value was not finite
};

struct LossSpikeRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  double train_loss = 0;
  double mean_before = 0;  // mean loss of the preceding steps
  double stddevs = 0;      // number of standard deviations above that mean
};

// All parameters and their gradients, in canonical layout, for histograms.
struct HistogramsRecord {
  struct Tensor {
    std::string name;
    std::vector<float> values;
    std::vector<float> gradients;  // gradients of the latest step, over all ranks; empty if frozen
  };
  int64_t step = 0;
  int64_t epoch = 0;  // epochs completed
  std::vector<Tensor> tensors;
  double stall_seconds = 0;  // during which the copy blocked training
};

// Training images as the network receives them, after augmentation.
struct SamplesRecord {
  int64_t step = 0;
  TensorSpec spec;                // spec of one sample
  std::vector<std::byte> inputs;  // the samples, concatenated
  std::vector<std::string> labels;
};

struct EndRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  std::string status;            // "done", "stopped"
  std::string ended_by, reason;  // as in Summary
};

// Text to be written to stdout unchanged, including control characters.
struct ConsoleText {
  std::string text;
};

// A line for the log of this rank.
struct LogLine {
  std::string text;
};

using MetricsRecord = std::variant<StartRecord, StepRecord, EvaluationRecord, CheckpointRecord,
                                   RanksRecord, NotFiniteRecord, LossSpikeRecord, HistogramsRecord,
                                   SamplesRecord, EndRecord, ConsoleText, LogLine>;

struct MetricsEvent {
  std::chrono::system_clock::time_point when;
  MetricsRecord record;
};

// The results of a run, written at its end. Fractions are relative to the time spent in steps.
struct Summary {
  std::string status;    // "done", "stopped"
  std::string ended_by;  // "epochs", "max_steps", "early_stopping" or "signal"
  std::string reason;    // why early stopping ended the run, as text
  int ranks = 1;
  std::string precision;
  int64_t epochs = 0;         // completed since the run began, including before a resume
  int64_t steps = 0;          // likewise
  int64_t skipped_steps = 0;  // those of `steps` whose update was skipped
  double samples_per_second = 0;
  std::optional<double> tokens_per_second;                       // set if samples consist of tokens
  std::optional<double> model_flops_utilization, padding_share;  // as in StepRecord
  double wall_seconds = 0;
  double train_loss = 0;    // mean over the samples of the latest epoch
  EvaluationMetrics eval;   // of the last evaluation
  int64_t eval_step = 0;    // the step of `eval`
  EvaluationMetrics best;   // of the best evaluation so far, as `trireme runs` lists it; on rank 0
  int64_t best_step = 0;    // the step of `best`
  std::string best_metric;  // by which it is the best
  double data_wait_fraction = 0;
  double exposed_comm_fraction = 0;
  int64_t bad_records = 0;           // skipped in the data, see data.on_bad_record
  int64_t peak_memory_bytes = 0;     // largest resident set of any rank
  int64_t skipped_checkpoints = 0;   // due while another checkpoint was still being written
  double seconds_to_first_step = 0;  // since the start of the process
};

// Replaces the file atomically. Throws Error if it cannot be written.
void write_summary(const std::filesystem::path& path, const Summary& summary);

}  // namespace trireme::train
