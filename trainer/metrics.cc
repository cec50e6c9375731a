#include "trainer/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"
#include "trainer/file.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kFlushEvery = std::chrono::seconds(1);
constexpr size_t kFlushBytes = 64 << 10;

struct Line {
  int64_t step = 0;
  bool late = false;  // may stand after lines of later steps: checkpoints are written beside them
};

// Nothing when the line is not whole.
std::optional<Line> parse_line(std::string_view line) {
  const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer()) {
    return std::nullopt;
  }
  return Line{record["step"].get<int64_t>(),
              record.contains("event") && record["event"] == "checkpoint"};
}

// Where the lines end that are kept: lines are in the order of their steps, but for late ones, so
// the search goes backward.
size_t kept_bytes(const std::string& text, int64_t keep_through_step) {
  size_t end = text.rfind('\n');
  end = end == std::string::npos ? 0 : end + 1;  // a line without an end was cut by a crash
  size_t kept = end;
  while (end > 0) {
    const size_t before = end >= 2 ? text.rfind('\n', end - 2) : std::string::npos;
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    const auto line = parse_line(std::string_view(text).substr(begin, end - begin - 1));
    if (!line || line->step > keep_through_step) {
      kept = begin;
    } else if (!line->late) {
      return kept;
    }
    end = begin;
  }
  return kept;
}

// JSON has neither NaN nor infinities.
std::string number(float value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}
double finite(double value) { return std::isfinite(value) ? value : 0; }

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t keep_through_step, Warn warn)
    : path_(path), warn_(std::move(warn)), flushed_(Clock::now()) {
  size_t keep = 0;
  std::error_code none;
  if (keep_through_step > 0 && std::filesystem::exists(path_, none)) {
    keep = kept_bytes(read_text(path_), keep_through_step);
  }
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(keep)) != 0 ||
      ::lseek(file_, 0, SEEK_END) < 0) {
    throw Error(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)));
  }
  buffer_.reserve(2 * kFlushBytes);
}

MetricsFile::~MetricsFile() {
  flush();
  if (file_ >= 0) ::close(file_);
}

void MetricsFile::write(const StepRecord& record) {
  auto out = std::back_inserter(buffer_);
  fmt::format_to(out, R"({{"event":"step","step":{},"epoch":{},"train_loss":{},)", record.step,
                 record.epoch, number(record.train_loss));
  fmt::format_to(out,
                 R"("learning_rate":{:.9g},"samples_per_second":{:.6g},"step_ms":{:.4f},)"
                 R"("data_wait_ms":{:.4f},"exposed_comm_ms":{:.4f})",
                 record.learning_rate, finite(record.samples_per_second), record.step_ms,
                 record.data_wait_ms, record.exposed_comm_ms);
  if (record.parameter_checksum) {
    fmt::format_to(out, R"(,"parameter_checksum":"{:016x}")", *record.parameter_checksum);
  }
  if (record.loss_scale) fmt::format_to(out, R"(,"loss_scale":{})", *record.loss_scale);
  fmt::format_to(out, R"(,"skipped_steps":{})", record.skipped_steps);
  if (record.bad_records) fmt::format_to(out, R"(,"bad_records":{})", *record.bad_records);
  if (record.load) {
    fmt::format_to(
        out,
        R"(,"gpu_load_percent":{:.0f},"gpu_memory_bytes":{:.0f},"gpu_power_watts":{:.0f},)"
        R"("gpu_clock_mhz":{:.0f},"gpu_temperature_celsius":{:.0f})",
        record.load->utilisation_percent, record.load->memory_used_bytes, record.load->power_watts,
        record.load->clock_mhz, record.load->temperature_celsius);
  }
  buffer_ += '}';
  line_done();
}

void MetricsFile::write(const std::string& json) {
  buffer_ += json;
  line_done();
}

void MetricsFile::line_done() {
  buffer_ += '\n';
  if (buffer_.size() >= kFlushBytes || Clock::now() - flushed_ >= kFlushEvery) flush();
}

void MetricsFile::flush() {
  flushed_ = Clock::now();
  size_t done = 0;
  while (file_ >= 0 && done < buffer_.size()) {
    const ssize_t written = ::write(file_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int reason = errno;
      ::close(file_);
      file_ = -1;
      warn_(fmt::format("{}: cannot be written any more, training goes on without it: {}",
                        path_.string(), std::strerror(reason)));
      break;
    }
    done += static_cast<size_t>(written);
  }
  buffer_.clear();
}

void write_summary(const std::filesystem::path& path, const Summary& summary) {
  const auto or_null = [](std::optional<double> value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  const nlohmann::ordered_json out = {{"status", summary.status},
                                      {"ranks", summary.ranks},
                                      {"precision", summary.precision},
                                      {"epochs", summary.epochs},
                                      {"steps", summary.steps},
                                      {"samples_per_second", summary.samples_per_second},
                                      {"wall_seconds", summary.wall_seconds},
                                      {"train_loss", summary.train_loss},
                                      {"eval_loss", or_null(summary.eval_loss)},
                                      {"eval_accuracy", or_null(summary.eval_accuracy)},
                                      {"eval_top5", or_null(summary.eval_top5)},
                                      {"data_wait_fraction", summary.data_wait_fraction},
                                      {"exposed_comm_fraction", summary.exposed_comm_fraction},
                                      {"bad_records", summary.bad_records},
                                      {"peak_memory_bytes", summary.peak_memory_bytes},
                                      {"saves_left_out", summary.saves_left_out},
                                      {"seconds_to_first_step", summary.seconds_to_first_step}};
  replace_durably(path, out.dump(2) + "\n");
}

}  // namespace trireme
