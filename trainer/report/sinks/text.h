// Sinks for text: the console of rank 0 and the log of each rank.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trainer/report/sinks/appended_file.h"
#include "trainer/report/sinks/sink.h"

namespace trireme::train {

// Writes ConsoleText to an open file descriptor. Does not use stdio, because a reader that hangs
// would block its lock forever. Ignores errors.
class ConsoleSink : public Sink {
 public:
  explicit ConsoleSink(int file) : file_(file) {}

  std::string name() const override { return "console"; }
  bool wants(const MetricsRecord& record) const override { return is_one_of<ConsoleText>(record); }
  void write(const MetricsEvent& event) override;
  void flush() override;

 private:
  int file_;
  std::string text_;
};

// Appends LogLines, with timestamps, to the log of one rank.
class LogSink : public Sink {
 public:
  explicit LogSink(std::filesystem::path path) : path_(std::move(path)) {}

  std::string name() const override { return "log"; }
  bool wants(const MetricsRecord& record) const override { return is_one_of<LogLine>(record); }
  void open() override;
  void write(const MetricsEvent& event) override;
  void flush() override;

 private:
  std::filesystem::path path_;
  std::unique_ptr<AppendedFile> file_;
};

}  // namespace trireme::train
