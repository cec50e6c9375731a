// The progress display of a run on stdout: a live line on a terminal, a plain line every few
// seconds otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/device.h"
#include "trainer/step/evaluator.h"

namespace trireme::train {

struct ProgressOptions {
  std::function<void(std::string)> put;  // writes the text to stdout unchanged
  bool live = false;                     // stdout is a terminal, whose last line is overwritten
  bool color = false;                    // uses ANSI colors
  bool quiet = false;                    // shows nothing; for ranks other than 0
  int columns = 80;
};
// Returns the options that fit stdout and the environment (TERM, NO_COLOR, COLUMNS).
ProgressOptions progress_options(bool quiet, std::function<void(std::string)> put);

// Returns "82.00 k tokens/s", or "640 samples/s" if samples do not consist of tokens.
std::string speed_text(double samples_per_second, std::optional<double> tokens_per_second);

// Used by the Reporter of rank 0.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `epochs` and `total_steps` are the planned length of the run; `epochs` is 0 if only the number
  // of steps is limited.
  Progress(const ProgressOptions& options, int64_t epochs, int64_t total_steps);
  ~Progress();

  struct Step {
    int64_t step = 0;  // steps done since the run began
    int64_t epoch = 0;
    int64_t samples = 0;
    int64_t tokens = 0;  // of the samples; 0 if they do not consist of tokens
    double loss = 0;
    double seconds = 0;
    double data_wait = 0;                 // seconds of the step
    double exposed_comm = 0;              // seconds of the step
    std::optional<double> idle = {};      // seconds of the step; set with pipeline stages
    std::optional<DeviceLoad> load = {};  // set if it was measured since the previous step
  };
  // Call after each step with the time at which it ended. Cheap unless a line is due.
  void step(const Step& step, Clock::time_point now);
  void epoch_done(int64_t epochs_done, double train_loss,
                  const std::optional<Evaluation>& evaluation);
  void evaluated(int64_t step, const Evaluation& evaluation);
  // Prints `text` as a separate line.
  void note(const std::string& text);
  // Erases the live line.
  void finish();

 private:
  struct Window {  // totals since the previous line
    int64_t steps = 0;
    int64_t samples = 0;
    int64_t tokens = 0;
    double seconds = 0;
    double data_wait = 0;
    double exposed_comm = 0;
    std::optional<double> idle = {};
  };
  void begin_window();
  // Returns the speed since the previous line or, if there was no step since, before it.
  std::string speed() const;
  std::string results(const Evaluation& evaluation) const;
  std::string bar(double part) const;
  void print(const std::string& line);
  void draw();

  ProgressOptions options_;
  int64_t epochs_;
  int64_t total_steps_;
  Step last_;
  Window window_, previous_;
  std::optional<DeviceLoad> load_;  // the latest measurement
  double seconds_per_step_ = 0;     // smoothed, for the ETA
  Clock::time_point shown_;
  bool drawn_ = false;
};

}  // namespace trireme::train
