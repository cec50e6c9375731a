#include "launch/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/text.h"

namespace trireme::cli {
namespace {

constexpr auto kEvery = std::chrono::milliseconds(100);
constexpr int kCells = 20;
constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

ProgressBar::ProgressBar() : live_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() { clear(); }

bool ProgressBar::due() {
  const auto now = Clock::now();
  if (!live_ || (drawn_ && now - shown_ < kEvery)) return false;
  shown_ = now;
  drawn_ = true;
  return true;
}

void ProgressBar::show(int64_t done, int64_t total, std::string_view unit) {
  if (!due()) return;
  const double seconds = std::chrono::duration<double>(shown_ - began_).count();
  const double part = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total));
  const int cells = std::clamp(static_cast<int>(part * kCells), 0, kCells);
  std::string text = fmt::format("{}[{:<{}}] {}/{} {}", kClearLine, std::string(cells, '='), kCells,
                                 done, total, unit);
  if (done > 0 && seconds > 0) {
    text += fmt::format("  {}/s  {} left", format_count(static_cast<double>(done) / seconds),
                        format_duration(seconds * (1 / part - 1)));
  }
  std::fputs(text.c_str(), stderr);
}

void ProgressBar::show(std::string_view text) {
  if (due()) std::fputs((kClearLine + printable(text)).c_str(), stderr);
}

void ProgressBar::clear() {
  if (drawn_) std::fputs(kClearLine, stderr);
  drawn_ = false;
}

}  // namespace trireme::cli
