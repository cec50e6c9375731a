#include "trainer/report/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "trainer/base/process.h"

namespace trireme::train {
namespace {

constexpr auto kLiveEvery = std::chrono::milliseconds(100);
constexpr auto kPlainEvery = std::chrono::seconds(10);
constexpr auto kPlainEpochEvery = std::chrono::seconds(1);
constexpr int64_t kFewEpochs = 100;  // up to this many, each epoch gets a line
constexpr int kBarCells = 20;
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kPlain = "\x1b[0m";
constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

ProgressOptions progress_options(bool quiet, std::function<void(std::string)> put) {
  ProgressOptions options;
  options.put = std::move(put);
  options.quiet = quiet;
  if (quiet) return options;
  options.live = stdout_is_terminal();
  options.color = stdout_in_color();
  if (options.live) options.columns = terminal_columns();
  return options;
}

std::string speed_text(double samples_per_second, std::optional<double> tokens_per_second) {
  return tokens_per_second ? format_count(*tokens_per_second) + " tokens/s"
                           : format_count(samples_per_second) + " samples/s";
}

Progress::Progress(const ProgressOptions& options, int64_t epochs, int64_t total_steps)
    : options_(options), epochs_(epochs), total_steps_(total_steps), shown_(Clock::now()) {}

Progress::~Progress() { finish(); }

void Progress::step(const Step& step, Clock::time_point now) {
  if (options_.quiet) return;
  last_ = step;
  if (step.load) load_ = step.load;
  ++window_.steps;
  window_.samples += step.samples;
  window_.tokens += step.tokens;
  window_.seconds += step.seconds;
  window_.data_wait += step.data_wait;
  window_.exposed_comm += step.exposed_comm;
  if (step.idle) window_.idle = window_.idle.value_or(0) + *step.idle;
  const auto since = now - shown_;
  if (options_.live ? since < kLiveEvery : since < kPlainEvery) return;
  shown_ = now;
  if (options_.live) {
    draw();
  } else {
    print(fmt::format("step {}/{}  loss {}  {}", step.step, total_steps_, loss_text(step.loss),
                      speed()));
  }
  begin_window();
}

void Progress::draw() {
  const double recent = window_.seconds / static_cast<double>(std::max<int64_t>(1, window_.steps));
  seconds_per_step_ = seconds_per_step_ > 0 ? 0.8 * seconds_per_step_ + 0.2 * recent : recent;
  const double left = seconds_per_step_ * static_cast<double>(total_steps_ - last_.step);
  const double part =
      static_cast<double>(last_.step) / static_cast<double>(std::max<int64_t>(1, total_steps_));
  std::string text =
      epochs_ > 0 ? fmt::format("epoch {}/{}  ", std::min(last_.epoch + 1, epochs_), epochs_) : "";
  text += fmt::format("step {}/{}  loss {}  {}  ETA {}", last_.step, total_steps_,
                      loss_text(last_.loss), speed(), format_duration(left));
  const int room =
      options_.columns - 1 - (kBarCells + 2);  // a cell of the bar is several bytes, but one column
  const bool with_bar = static_cast<int>(text.size()) <= room;
  text.resize(std::min(text.size(), static_cast<size_t>(std::max(10, options_.columns - 1))));
  options_.put(kClearLine + (with_bar ? bar(part) + "  " : "") + text);
  drawn_ = true;
}

std::string Progress::bar(double part) const {
  const int full = std::clamp(static_cast<int>(part * kBarCells + 0.5), 0, kBarCells);
  std::string cells;
  for (int i = 0; i < full; ++i) cells += "━";
  if (options_.color) cells += kDim;
  for (int i = full; i < kBarCells; ++i) cells += options_.color ? "━" : "·";
  return options_.color ? cells + kPlain : cells;
}

void Progress::begin_window() {
  if (window_.steps > 0) previous_ = std::exchange(window_, {});
}

std::string Progress::speed() const {
  const Window& window = window_.steps > 0 ? window_ : previous_;
  const auto rate = [&](int64_t count) {
    return window.seconds > 0 ? static_cast<double>(count) / window.seconds : 0;
  };
  const auto tokens = window.tokens > 0 ? std::optional(rate(window.tokens)) : std::nullopt;
  std::string text = fmt::format(
      "{}  data wait {:.0f}%  exposed comm {:.0f}%", speed_text(rate(window.samples), tokens),
      percent(window.data_wait, window.seconds), percent(window.exposed_comm, window.seconds));
  if (window.idle) text += fmt::format("  idle {:.0f}%", percent(*window.idle, window.seconds));
  if (load_) {
    text += fmt::format("  gpu {:.0f}% {:.0f} W", load_->utilization_percent, load_->power_watts);
  }
  return text;
}

std::string Progress::results(const Evaluation& evaluation) const {
  std::string text = "eval";
  for (const MetricInfo& metric : kEvaluationMetrics) {
    const std::optional<double>& value = evaluation.metrics.*metric.value;
    if (!value || !metric.is_brief) continue;
    const bool bold = options_.color && metric.value == &EvaluationMetrics::accuracy;
    const std::string shown = metric_text(metric, *value);
    text += fmt::format("{}{} {}", text == "eval" ? " " : "  ", metric.title,
                        bold ? kBold + shown + kPlain : shown);
  }
  return text;
}

void Progress::epoch_done(int64_t epochs_done, double train_loss,
                          const std::optional<Evaluation>& evaluation) {
  if (options_.quiet) return;
  const auto now = Clock::now();
  const bool last = epochs_done == epochs_ || last_.step == total_steps_;
  if (!last && epochs_ > kFewEpochs && now - shown_ < kPlainEpochEvery) return;
  shown_ = now;
  const std::string epochs = epochs_ > 0 ? fmt::format("/{}", epochs_) : "";
  print(fmt::format("epoch {}{}  step {}  loss {}  {}{}", epochs_done, epochs, last_.step,
                    loss_text(train_loss), speed(), evaluation ? "  " + results(*evaluation) : ""));
  begin_window();
}

void Progress::evaluated(int64_t step, const Evaluation& evaluation) {
  print(fmt::format("step {}  {}", step, results(evaluation)));
}

void Progress::note(const std::string& text) { print(printable_message(text)); }

void Progress::print(const std::string& line) {
  if (options_.quiet) return;
  finish();
  options_.put(line + "\n");
}

void Progress::finish() {
  if (!drawn_) return;
  options_.put(kClearLine);
  drawn_ = false;
}

}  // namespace trireme::train
