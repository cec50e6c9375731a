// TensorBoard event files in RUN/tensorboard: scalars, histograms of parameters and gradients,
// training images, and the configuration as text and as hyperparameters.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "trainer/report/sinks/event_file.h"
#include "trainer/report/sinks/sink.h"

namespace trireme::train {

class TensorBoardSink : public Sink {
 public:
  // Limits how many step records are written (a token bucket), so that TensorBoard can still open
  // a run of millions of steps. The latest step before an evaluation or the end is always written.
  static constexpr double kStepBurst = 1000;
  static constexpr double kStepsPerSecond = 2;

  // Removes existing files if `keep_through_step` is 0. Otherwise keeps them; TensorBoard then
  // ignores their events of later steps.
  TensorBoardSink(std::filesystem::path folder, int64_t keep_through_step);

  std::string name() const override { return "tensorboard"; }
  bool wants(const MetricsRecord& record) const override;
  void open() override;
  void write(const MetricsEvent& event) override;
  void flush() override { file_->flush(); }

 private:
  using Time = std::chrono::system_clock::time_point;

  // Builds one event: several summaries of the same time and step.
  class Summaries;
  void add(const Summaries& summaries);
  bool may_write_step(Time now);
  void write_pending();

  void write(Time when, const StartRecord& record);
  void write(Time when, const StepRecord& record);
  void write(Time when, const EvaluationRecord& record);
  void write(Time when, const RanksRecord& record);
  void write(Time when, const HistogramsRecord& record);
  void write(Time when, const SamplesRecord& record);
  void write(Time when, const EndRecord& record);

  std::filesystem::path folder_;
  int64_t keep_through_step_;
  std::unique_ptr<EventFile> file_;
  double steps_allowed_ = kStepBurst;
  Time allowed_at_;
  struct Pending {
    Time when;
    StepRecord record;
  };
  std::optional<Pending> pending_;  // the latest step, if it has not been written
};

}  // namespace trireme::train
