// Everything a run tells: progress on stdout, metrics.jsonl, the rank's log, the summary. Rank 0
// tells; the others only keep their logs.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "trainer/checkpoint_writer.h"
#include "trainer/checks.h"
#include "trainer/evaluator.h"
#include "trainer/metrics.h"
#include "trainer/progress.h"
#include "trainer/run_folder.h"
#include "trainer/step.h"

namespace trireme {

// What a run is, for its first lines.
struct RunFacts {
  Device* device = nullptr;  // outlives the reporter
  int64_t parameters = 0;
  std::string training_data;
  std::string evaluation_data;
  BadRecords bad_records;  // left out when the files were opened
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;  // of the whole run
  bool classifies = true;
};

// A step whose result may be still to come.
struct LaunchedStep {
  Batch batch;  // but for its memory, which is in use again
  double learning_rate = 0;
  double data_wait = 0;  // seconds
};

class Reporter {
 public:
  using Clock = std::chrono::steady_clock;

  Reporter(const Config& config, Communicator& communicator, const RunFolder& folder, bool quiet);

  // On rank 0. Keeps what is there up to that step. Throws Error when the file cannot be written.
  void open_metrics(int64_t keep_through_step);
  void start(const RunFacts& facts, const std::optional<FoundCheckpoint>& resumed);
  void warn(const std::string& text);
  // Measures time from now: what happened since the last step was none.
  void begin_steps();
  // `step` updates are done.
  void step(int64_t step, const LaunchedStep& launched, const StepResult& result,
            std::optional<uint64_t> checksum);
  // The update of this step was left out.
  void not_finite(int64_t step, int64_t epoch, const std::string& what);
  // Samples of the latest steps were left out, for reasons of which there may be more.
  void left_out(int64_t samples, const std::vector<std::string>& reasons);
  void loss_spike(int64_t step, int64_t epoch, double loss, const LossSpikes::Spike& spike);
  void evaluated(const CheckpointState& state, const Evaluation& evaluation);
  void epoch_done(const CheckpointState& state);
  // Before a checkpoint is written: a run that goes on from it misses no record.
  void saving();
  void saved(const SaveOutcome& outcome);
  // A save came due while that of `writing` has been under way for so long.
  void save_left_out(int64_t step, int64_t writing, double so_far);
  // Of a run that had nothing left to do.
  void nothing_left(const CheckpointState& state);
  // Writes the end of all records; all ranks call it together.
  Summary end(const CheckpointState& state, const std::string& status);

 private:
  struct Totals {
    int64_t steps = 0;
    int64_t samples = 0;
    double seconds = 0;
    double data_wait = 0;
    double exposed_comm = 0;
  };
  // Of this rank's device, at most once a second.
  std::optional<DeviceLoad> device_load(Clock::time_point now);
  void record(int64_t step, const LaunchedStep& launched, const StepResult& result,
              std::optional<uint64_t> checksum);
  void note(const std::string& text);
  void closing_lines(const Summary& summary);

  const Config& config_;
  Communicator& communicator_;
  RunFolder folder_;
  bool quiet_;
  RankLog log_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<MetricsFile> metrics_;  // on rank 0
  bool classifies_ = true;
  Device* device_ = nullptr;
  Clock::time_point load_asked_;
  std::optional<DeviceLoad> load_;  // not yet in a record
  Clock::time_point started_;
  Clock::time_point mark_;
  Totals totals_;
  Totals logged_;  // as of the last step record
  double seconds_to_first_step_ = 0;
  int64_t bad_records_ = 0;
  int64_t logged_bad_records_ = 0;
  int64_t saves_left_out_ = 0;
  int64_t blocking_save_ = -1;            // the step of that which was last in the way of others
  std::optional<Evaluation> evaluation_;  // the latest
  std::optional<Evaluation> unshown_;     // not yet on a progress line
};

}  // namespace trireme
