// RUN/metrics.jsonl: the records of a run, one JSON object per line.
#pragma once

#include <filesystem>
#include <string>

#include "trainer/report/sinks/appended_file.h"
#include "trainer/report/sinks/sink.h"

namespace trireme::train {

class JsonlSink : public Sink {
 public:
  static constexpr const char* kName = "metrics.jsonl";

  // Truncates an existing file after the lines of `keep_through_step`. Throws Error if the file
  // cannot be written.
  JsonlSink(const std::filesystem::path& path, int64_t keep_through_step);

  std::string name() const override { return kName; }
  bool wants(const MetricsRecord& record) const override;
  void write(const MetricsEvent& event) override;
  void flush() override { file_.flush(); }

 private:
  AppendedFile file_;
};

}  // namespace trireme::train
