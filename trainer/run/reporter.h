// Reports the progress of a run: turns the results of steps, evaluations and saves into records and
// text and passes them to the sinks (trainer/report/sinks). Rank 0 reports everything; the other
// ranks only write their logs.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/config/run_folder.h"
#include "trainer/report/metrics.h"
#include "trainer/report/progress.h"
#include "trainer/report/rank_lags.h"
#include "trainer/report/run_records.h"
#include "trainer/report/sinks/hub.h"
#include "trainer/run/checks.h"
#include "trainer/run/run_messages.h"
#include "trainer/run/step_work.h"
#include "trainer/step/evaluator.h"
#include "trainer/step/step.h"

namespace trireme::train {

// The outcome of a run; see Summary.
struct Ending {
  std::string status, ended_by, reason = {};
};

// A step that has been launched and may not have a result yet.
struct LaunchedStep {
  data::Batch batch;  // its memory has been reused: only the other fields are valid
  double learning_rate = 0;
  double data_wait = 0;  // seconds
};

// An evaluation with details, after `step` updates and `epoch` epochs.
struct DetailedEvaluation {
  int64_t step = 0;
  int64_t epoch = 0;
  Evaluation evaluation;
};

class Reporter {
 public:
  using Clock = std::chrono::steady_clock;

  Reporter(const RunConfig& config, comm::Communicator& communicator, const RunFolder& folder,
           bool quiet);

  // Opens metrics.jsonl and the other configured sinks. Keeps existing records up to the step of
  // the checkpoint that the run resumes from, and removes later ones. Throws Error if metrics.jsonl
  // cannot be read or written. Only on rank 0.
  void open_metrics(const std::optional<FoundCheckpoint>& resumed);
  void start(const RunInfo& info, const std::optional<FoundCheckpoint>& resumed);
  void warn(const std::string& text);
  // Prints a warning to stderr. For warnings about the user's files and settings.
  void alert(const std::string& text);
  // Reports, in the log and on stderr, how the run differs from the one that wrote the checkpoint.
  void resume_changes(const FoundCheckpoint& resumed, const std::vector<std::string>& changes);
  // Reports the table of a profile.
  void profile_table(const std::string& table);
  // Excludes the time since the last step from the measurement of the next one.
  void restart_step_time();
  // Reports a step, after which `step` updates are done.
  void step(int64_t step, const LaunchedStep& launched, const StepResult& result,
            std::optional<uint64_t> checksum);
  // Reports that the update of this step was skipped because a value was not finite.
  void not_finite(int64_t step, int64_t epoch, const std::string& what);
  // Reports that bad samples were skipped, for these reasons and possibly more.
  void samples_skipped(int64_t samples, const std::vector<std::string>& reasons);
  void loss_spike(int64_t step, int64_t epoch, double loss, const LossSpikes::Spike& spike);
  void evaluated(const CheckpointState& state, const Evaluation& evaluation);
  // Sets what end() writes into evaluation.json.
  void evaluated_in_detail(DetailedEvaluation evaluation) { detailed_ = std::move(evaluation); }
  // Reports, at the end of the run, that its result is the best checkpoint.
  void ends_with_best(const BestCheckpoint& best) { best_checkpoint_ = best; }
  void epoch_done(const CheckpointState& state);
  void samples(SamplesRecord record);
  void histograms(HistogramsRecord record);
  // Returns whether the previous histograms have been written, so that at most one copy of all
  // parameters is in memory.
  bool ready_for_histograms() const { return histograms_.expired(); }
  // Returns a function that the caller must call, on any thread, before a checkpoint becomes
  // visible. It waits, for a few seconds at most, until metrics.jsonl has all records up to now, so
  // that a run that resumes from the checkpoint misses none.
  std::function<void()> before_checkpoint();
  void saved(const SaveOutcome& outcome);
  // Reports that a checkpoint at `step` was due while that of step `writing` was still being
  // written, for `seconds` so far.
  void checkpoint_skipped(int64_t step, int64_t writing, double seconds);
  // Reports that the run is already complete. `why_early` is why it was stopped early, or empty.
  void already_complete(const CheckpointState& state, const std::string& why_early);
  // Writes the last records, summary.json and evaluation.json. `output_names` are those of
  // data::output_names. After its last communication, rank 0 waits for the disk. Collective.
  Summary end(const CheckpointState& state, const Ending& ending,
              const std::vector<std::string>& output_names);

 private:
  using When = MetricsHub::When;

  struct Totals {
    int64_t steps = 0;
    int64_t samples = 0;
    int64_t tokens = 0;
    double seconds = 0;
    double data_wait = 0;
    StepWork::Amount work = {};
    StepTimings timings = {};
  };
  std::unique_ptr<Progress> make_progress(int64_t epochs, int64_t total_steps);
  bool is_rank_0() const { return communicator_.rank() == 0; }
  // Returns the load of this rank's device, at most once per second.
  std::optional<DeviceLoad> device_load(Clock::time_point now);
  void record(int64_t step, const LaunchedStep& launched, const StepResult& result,
              std::optional<uint64_t> checksum);
  void report_rank_lags(int64_t step, Clock::time_point now, bool end);
  std::vector<double> by_stage(const std::vector<double>& by_rank) const;
  void note(const std::string& text);
  // Warns of an event of a step, unless there were many of its kind before. Adds it to the `count`.
  void warn_of_step(std::string text, int64_t& count);
  void write_start(const RunInfo& info, const std::optional<FoundCheckpoint>& resumed);
  void warn_of_sink_problems();
  void restore_best(const BestEvaluation& saved);
  Summary summary_of(const CheckpointState& state, const Ending& ending);
  void write_results(const Summary& summary, const std::vector<std::string>& output_names);

  const RunConfig& config_;
  comm::Communicator& communicator_;
  RunFolder folder_;
  std::string resume_;  // the option --resume
  bool quiet_;
  MetricsHub hub_;
  std::unique_ptr<Progress> progress_;  // writes its text to the hub
  Device* device_ = nullptr;
  int64_t tokens_per_sample_ = 0;
  const StepWork* work_ = nullptr;
  Clock::time_point load_read_at_;
  std::optional<DeviceLoad> load_;  // not in a record yet
  RankLags lags_;
  Clock::time_point started_;
  Clock::time_point last_step_at_;
  Totals totals_;
  Totals logged_;  // as of the last step record
  double seconds_to_first_step_ = 0;
  int64_t bad_records_ = 0;
  int64_t logged_bad_records_ = 0;
  int64_t not_finite_steps_ = 0;
  int64_t loss_spikes_ = 0;
  bool warned_of_evaluation_ = false;  // whether it has warned of a non-finite evaluation loss
  int64_t skipped_checkpoints_ = 0;
  int64_t blocking_save_ = -1;  // the step of the last save that made others be skipped
  std::weak_ptr<const MetricsEvent> histograms_;  // the last, while sinks still need it
  std::optional<Evaluation> evaluation_;          // the latest
  int64_t evaluated_step_ = 0;                    // of evaluation_
  std::string best_metric_;                       // by which evaluations are compared
  std::optional<EvalPoint> best_;                 // the best evaluation so far; only on rank 0
  std::optional<BestCheckpoint> best_checkpoint_;
  std::optional<DetailedEvaluation> detailed_;
  std::optional<Evaluation> unshown_;  // not on a progress line yet
  // Set once a save has timed out waiting for metrics.jsonl. Later saves do not wait.
  std::shared_ptr<std::atomic<bool>> records_timed_out_ =
      std::make_shared<std::atomic<bool>>(false);
};

}  // namespace trireme::train
