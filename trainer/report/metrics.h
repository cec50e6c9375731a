// What a run tells about itself: the records that all sinks (trainer/report/sinks) are fed, and
// summary.json.
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

// A field of the configuration, as a value that runs can be compared by.
using HyperParameter = std::variant<bool, double, std::string>;

// The run begins, or goes on.
struct StartRecord {
  int64_t step = 0;      // updates done before
  int64_t epoch = 0;     // completed before
  int64_t position = 0;  // samples of the current epoch that were used before
  std::string version;
  std::string model;
  int64_t parameters = 0;
  int ranks = 1;
  std::string precision;
  int64_t global_batch = 0;
  int64_t samples_per_epoch = 0;
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;
  int64_t bad_records = 0;
  std::optional<std::string> resumed_from;
  std::string run_dir;
  std::string config;  // as text
  std::map<std::string, HyperParameter> hyper_parameters;
  int64_t classes = 0;  // of a sample; 0: regression
};

// Times are means over the steps since the record before.
struct StepRecord {
  int64_t step = 0;   // updates done, this one included
  int64_t epoch = 0;  // in which the step was, from 0
  float train_loss = 0;
  double learning_rate = 0;
  double samples_per_second = 0;
  double step_ms = 0;
  double data_wait_ms = 0;
  double exposed_comm_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double update_ms = 0;
  double comm_ms = 0;         // of all sums, hidden or exposed
  int64_t samples_total = 0;  // trained by this process
  std::optional<uint64_t> parameter_checksum;
  std::optional<float> loss_scale;     // of FP16, after the step
  int64_t skipped_steps = 0;           // updates left out since the run began
  std::optional<int64_t> bad_records;  // left out so far, when more than in the record before
  std::optional<DeviceLoad> load;      // of this rank's GPU, since the record before
};

struct EvaluationRecord {
  int64_t step = 0;
  int64_t epoch = 0;  // completed
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
  double stall_seconds = 0;  // that training stood still
};

// By rank: the mean time per step that the others waited in sums longer than it did, and so for it.
struct RanksRecord {
  int64_t step = 0;
  std::vector<double> lag_ms;
};

// The update of this step was left out.
struct NotFiniteRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  std::string what;
};

struct LossSpikeRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  double train_loss = 0;
  double mean_before = 0;
  double deviations = 0;
};

// All parameters and their gradients, in canonical order, for histograms.
struct HistogramsRecord {
  struct Tensor {
    std::string name;
    std::vector<float> values;
    std::vector<float> gradients;  // of the latest step, over all ranks; none where it is frozen
  };
  int64_t step = 0;
  int64_t epoch = 0;  // completed
  std::vector<Tensor> tensors;
  double stall_seconds = 0;  // that training stood still for the copy
};

// Training samples that are images, as the network gets them.
struct SamplesRecord {
  int64_t step = 0;
  TensorSpec spec;                // of one
  std::vector<std::byte> inputs;  // one after the other
  std::vector<std::string> labels;
};

struct EndRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  std::string status;            // "done", "stopped"
  std::string ended_by, reason;  // as in Summary
};

// For stdout as it is, control characters and all.
struct ConsoleText {
  std::string text;
};

// A line for this rank's log.
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

// The end of a run. Fractions are of the time spent in steps. Optional where nothing was measured.
struct Summary {
  std::string status;    // "done", "stopped"
  std::string ended_by;  // "epochs", "max_steps", "early_stopping" or "signal"
  std::string reason;    // of early stopping, for people
  int ranks = 1;
  std::string precision;
  int64_t epochs = 0;         // completed, of the whole run
  int64_t steps = 0;          // likewise
  int64_t skipped_steps = 0;  // of these: their updates were left out
  double samples_per_second = 0;
  double wall_seconds = 0;
  double train_loss = 0;  // mean over the samples of the latest epoch
  EvaluationMetrics eval;
  int64_t eval_step = 0;  // of `eval`: with train.early_stopping that of the best checkpoint
  double data_wait_fraction = 0;
  double exposed_comm_fraction = 0;
  int64_t bad_records = 0;           // left out of the data, see data.on_bad_record
  int64_t peak_memory_bytes = 0;     // largest resident set of any rank
  int64_t saves_left_out = 0;        // came due while another was being written
  double seconds_to_first_step = 0;  // from the start of the process
};

// Writes the file whole or not at all.
void write_summary(const std::filesystem::path& path, const Summary& summary);

}  // namespace trireme::train
