#include "trainer/report/sinks/text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string_view>
#include <system_error>

namespace trireme {

void ConsoleSink::write(const MetricsEvent& event) {
  const auto* console = std::get_if<ConsoleText>(&event.record);
  if (console) text_ += console->text;
}

void ConsoleSink::flush() {
  for (std::string_view rest = text_; !rest.empty();) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    rest.remove_prefix(static_cast<size_t>(written));
  }
  text_.clear();
}

void LogSink::open() {
  std::error_code ignored;  // the file tells
  std::filesystem::create_directories(path_.parent_path(), ignored);
  file_ = std::make_unique<AppendedFile>(path_, AppendedFile::kAll);
}

void LogSink::write(const MetricsEvent& event) {
  const auto* line = std::get_if<LogLine>(&event.record);
  if (!line) return;
  const std::time_t time = std::chrono::system_clock::to_time_t(event.when);
  file_->buffer() += fmt::format("{:%Y-%m-%dT%H:%M:%S}Z {}\n", fmt::gmtime(time), line->text);
}

void LogSink::flush() { file_->flush(); }

}  // namespace trireme
