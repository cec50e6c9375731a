#include "trainer/report/sinks/text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <system_error>

#include "core/file.h"
#include "core/text.h"

namespace trireme::train {

void ConsoleSink::write(const MetricsEvent& event) {
  const auto* console = std::get_if<ConsoleText>(&event.record);
  if (console) text_ += console->text;
}

void ConsoleSink::flush() {
  write_all(file_, text_);
  text_.clear();
}

void LogSink::open() {
  std::error_code ignored;  // opening the file reports the error
  std::filesystem::create_directories(path_.parent_path(), ignored);
  file_ = std::make_unique<AppendedFile>(path_, AppendedFile::kAll);
}

void LogSink::write(const MetricsEvent& event) {
  const auto* line = std::get_if<LogLine>(&event.record);
  if (!line) return;
  const std::time_t time = std::chrono::system_clock::to_time_t(event.when);
  file_->buffer() +=
      fmt::format("{:%Y-%m-%dT%H:%M:%S}Z {}\n", fmt::gmtime(time), printable_message(line->text));
}

void LogSink::flush() { file_->flush(); }

}  // namespace trireme::train
