// Everything a run tells: what it knows after each step, evaluation and save becomes records and
// text, which the hub takes to the sinks (trainer/report/sinks). Rank 0 tells; the others only keep
// their logs.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/config/run_folder.h"
#include "trainer/report/metrics.h"
#include "trainer/report/progress.h"
#include "trainer/report/rank_lags.h"
#include "trainer/report/sinks/hub.h"
#include "trainer/run/checks.h"
#include "trainer/run/run_text.h"
#include "trainer/step/evaluator.h"
#include "trainer/step/step.h"

namespace trireme::train {

// See Summary.
struct Ending {
  std::string status, ended_by, reason = {};
};

// A step whose result may be still to come.
struct LaunchedStep {
  data::Batch batch;  // but for its memory, which is in use again
  double learning_rate = 0;
  double data_wait = 0;  // seconds
};

class Reporter {
 public:
  using Clock = std::chrono::steady_clock;

  Reporter(const RunConfig& config, comm::Communicator& communicator, const RunFolder& folder,
           bool quiet);

  // On rank 0: metrics.jsonl and what else is configured. Keeps what is there up to that step.
  // Throws Error when metrics.jsonl cannot be written.
  void open_metrics(int64_t keep_through_step);
  void start(const RunFacts& facts, const std::optional<FoundCheckpoint>& resumed);
  void warn(const std::string& text);
  // A warning for stderr: of what is done to what a user has.
  void alert(const std::string& text);
  // What differs from the run that wrote the checkpoint, for the log and stderr.
  void changed(const FoundCheckpoint& resumed, const std::vector<std::string>& changes);
  // The table of a profile.
  void profiled(const std::string& table);
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
  // The best once more, at the end: what the summary is about. It is in the records already.
  void evaluated_best(int64_t step, int64_t epoch, const Evaluation& evaluation);
  void epoch_done(const CheckpointState& state);
  void samples(SamplesRecord record);
  void histograms(HistogramsRecord record);
  // Whether those before are written: copies of all parameters do not pile up.
  bool takes_histograms() const { return histograms_.expired(); }
  // Before a checkpoint is written. What is returned is to be called, on any thread, before the
  // checkpoint becomes visible: it waits, some seconds at most, until metrics.jsonl has all records
  // up to now, so that a run that goes on from there misses none.
  std::function<void()> saving();
  void saved(const SaveOutcome& outcome);
  // A save came due while that of `writing` has been under way for so long.
  void save_left_out(int64_t step, int64_t writing, double so_far);
  // Of a run that had nothing left to do. `why_early`: why it was stopped early, or empty.
  void nothing_left(const CheckpointState& state, const std::string& why_early);
  // Writes the end of all records; all ranks call it together.
  Summary end(const CheckpointState& state, const Ending& ending);

 private:
  using When = MetricsHub::When;

  struct Totals {
    int64_t steps = 0;
    int64_t samples = 0;
    double seconds = 0;
    double data_wait = 0;
    StepTimings timings = {};
  };
  std::unique_ptr<Progress> make_progress(int64_t epochs, int64_t total_steps);
  bool tells() const { return communicator_.rank() == 0; }
  // Of this rank's device, at most once a second.
  std::optional<DeviceLoad> device_load(Clock::time_point now);
  void record(int64_t step, const LaunchedStep& launched, const StepResult& result,
              std::optional<uint64_t> checksum);
  void look_at_ranks(int64_t step, Clock::time_point now, bool end);
  void note(const std::string& text);
  void write_start(const RunFacts& facts, const std::optional<FoundCheckpoint>& resumed);
  void tell_problems();
  Summary summary_of(const CheckpointState& state, const Ending& ending);

  const RunConfig& config_;
  comm::Communicator& communicator_;
  RunFolder folder_;
  bool quiet_;
  MetricsHub hub_;
  std::unique_ptr<Progress> progress_;  // puts its text into the hub
  Device* device_ = nullptr;
  Clock::time_point load_asked_;
  std::optional<DeviceLoad> load_;  // not yet in a record
  RankLags lags_;
  Clock::time_point started_;
  Clock::time_point mark_;
  Totals totals_;
  Totals logged_;  // as of the last step record
  double seconds_to_first_step_ = 0;
  int64_t bad_records_ = 0;
  int64_t logged_bad_records_ = 0;
  int64_t not_finite_steps_ = 0;
  bool not_finite_evaluation_ = false;  // was warned of
  int64_t saves_left_out_ = 0;
  int64_t blocking_save_ = -1;  // the step of that which was last in the way of others
  std::weak_ptr<const MetricsEvent> histograms_;  // the latest, while they are under way
  std::optional<Evaluation> evaluation_;          // the latest or, at the end, the best
  int64_t evaluated_step_ = 0;                    // of it
  int64_t best_epoch_ = -1;                       // -1: the summary is not about the best
  std::optional<Evaluation> unshown_;             // not yet on a progress line
  // Whether a save has waited for metrics.jsonl in vain, which no other needs to do.
  std::shared_ptr<std::atomic<bool>> records_hang_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace trireme::train
