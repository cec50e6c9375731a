// How a run shows itself on stdout: a live line on a terminal, now and then a plain line elsewhere.
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
  // Where text goes, as it is.
  std::function<void(std::string)> put;
  bool live = false;   // a terminal, whose last line is written over
  bool color = false;  // never with NO_COLOR
  bool quiet = false;  // shows nothing: the other ranks
  int columns = 80;
};
// For stdout, as the environment asks; `put` is what takes it there.
ProgressOptions progress_options(bool quiet, std::function<void(std::string)> put);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // Lengths of the run; `epochs` is 0 when only steps bound it.
  Progress(const ProgressOptions& options, int64_t epochs, int64_t total_steps);
  ~Progress();

  // After each step, with the time it ended. Costs next to nothing unless a line is due.
  struct Step {
    int64_t step = 0;  // done, of the whole run
    int64_t epoch = 0;
    int64_t samples = 0;
    double loss = 0;
    double seconds = 0;
    double data_wait = 0;                 // seconds of it
    double exposed_comm = 0;              // seconds of it
    std::optional<DeviceLoad> load = {};  // where it was looked up since the step before
  };
  void step(const Step& step, Clock::time_point now);
  void epoch_done(int64_t epochs_done, double train_loss,
                  const std::optional<Evaluation>& evaluation);
  void evaluated(int64_t step, const Evaluation& evaluation);
  // A line of its own.
  void note(const std::string& text);
  // Takes the live line away.
  void finish();

 private:
  struct Window {  // since the line before
    int64_t steps = 0;
    int64_t samples = 0;
    double seconds = 0;
    double data_wait = 0;
    double exposed_comm = 0;
  };
  std::string speed() const;
  std::string results(const Evaluation& evaluation) const;
  std::string bar(double part) const;
  void print(const std::string& line);
  void draw();

  ProgressOptions options_;
  int64_t epochs_;
  int64_t total_steps_;
  Step last_;
  Window window_;
  std::optional<DeviceLoad> load_;  // the latest
  double seconds_per_step_ = 0;     // smoothed, for the time left
  Clock::time_point shown_;
  bool drawn_ = false;
};

}  // namespace trireme::train
