// What a run writes down about itself: metrics.jsonl, one object a line, and summary.json.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/device.h"

namespace trireme {

struct StepRecord {
  int64_t step = 0;   // updates done, this one included
  int64_t epoch = 0;  // in which the step was, from 0
  float train_loss = 0;
  double learning_rate = 0;
  double samples_per_second = 0;
  double step_ms = 0;
  double data_wait_ms = 0;
  double exposed_comm_ms = 0;
  std::optional<uint64_t> parameter_checksum;
  std::optional<float> loss_scale;     // of FP16, after the step
  int64_t skipped_steps = 0;           // updates left out since the run began
  std::optional<int64_t> bad_records;  // left out so far, when more than in the record before
  std::optional<DeviceLoad> load;      // of this rank's GPU, since the record before
};

// The end of a run. Fractions are of the time spent in steps. Optional where nothing was measured.
struct Summary {
  std::string status;  // "done", "stopped"
  int ranks = 1;
  std::string precision;
  int64_t epochs = 0;  // completed, of the whole run
  int64_t steps = 0;   // likewise
  double samples_per_second = 0;
  double wall_seconds = 0;
  double train_loss = 0;  // mean over the samples of the latest epoch
  std::optional<double> eval_loss;
  std::optional<double> eval_accuracy;
  std::optional<double> eval_top5;
  double data_wait_fraction = 0;
  double exposed_comm_fraction = 0;
  int64_t bad_records = 0;           // left out of the data, see data.on_bad_record
  int64_t peak_memory_bytes = 0;     // largest resident set of any rank
  int64_t saves_left_out = 0;        // came due while another was being written
  double seconds_to_first_step = 0;  // from the start of the process
};

// Appends lines to a file. Lines are collected and written at most every second or so. A file that
// cannot be written is reported once, through `warn`, and then left alone: records never stop
// training.
class MetricsFile {
 public:
  using Warn = std::function<void(const std::string&)>;

  // Keeps the lines of a file that is there up to `keep_through_step`, what lies beyond is cut off.
  MetricsFile(const std::filesystem::path& path, int64_t keep_through_step, Warn warn);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void write(const StepRecord& record);
  // A JSON object as text.
  void write(const std::string& json);
  void flush();

 private:
  void line_done();

  std::filesystem::path path_;
  Warn warn_;
  int file_ = -1;
  std::string buffer_;
  std::chrono::steady_clock::time_point flushed_;
};

// Writes the file whole or not at all.
void write_summary(const std::filesystem::path& path, const Summary& summary);

}  // namespace trireme
