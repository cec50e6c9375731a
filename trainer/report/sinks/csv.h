// Steps and evaluations as tables: RUN/steps.csv and RUN/evaluations.csv.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trainer/report/sinks/appended_file.h"
#include "trainer/report/sinks/sink.h"

namespace trireme::train {

class CsvSink : public Sink {
 public:
  // Truncates existing files after the rows of `keep_through_step`, or completely if their columns
  // differ (files of another version).
  CsvSink(std::filesystem::path run_folder, int64_t keep_through_step);

  std::string name() const override { return "csv"; }
  bool wants(const MetricsRecord& record) const override;
  void open() override;
  void write(const MetricsEvent& event) override;
  void flush() override;

 private:
  std::filesystem::path folder_;
  int64_t keep_through_step_;
  std::unique_ptr<AppendedFile> steps_;
  std::unique_ptr<AppendedFile> evaluations_;
};

}  // namespace trireme::train
