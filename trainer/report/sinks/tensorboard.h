// TensorBoard event files in RUN/tensorboard: scalars, histograms of parameters and gradients,
// training samples, the configuration as text and as hyper-parameters.
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
  // Scalars of so many steps are written at once, and from then on of so many a second, so that a
  // run of millions of steps stays one that TensorBoard opens; the latest is always among them.
  static constexpr double kStepsAtOnce = 1000;
  static constexpr double kStepsASecond = 2;

  // With `keep_through_step` above 0 what is there stays, but for steps beyond; else it is removed.
  TensorBoardSink(std::filesystem::path folder, int64_t keep_through_step);

  std::string name() const override { return "tensorboard"; }
  bool wants(const MetricsRecord& record) const override;
  void open() override;
  void write(const MetricsEvent& event) override;
  void flush() override { file_->flush(); }

 private:
  using Time = std::chrono::system_clock::time_point;

  // One summary, so one time and one step.
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
  double steps_allowed_ = kStepsAtOnce;
  Time allowed_at_;
  struct Pending {
    Time when;
    StepRecord record;
  };
  std::optional<Pending> pending_;  // the latest step, where it was not written
};

}  // namespace trireme::train
