#include "trainer/profile/window.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/parse_number.h"

namespace trireme::train {

StepWindow parse_step_window(std::string_view text) {
  constexpr std::string_view kKey = "steps=";
  constexpr std::string_view kTo = "..";
  const auto refuse = [&](std::string_view why) {
    throw ConfigError(fmt::format("'{}' {}", text, why));
  };
  const size_t to = text.find(kTo);
  if (!text.starts_with(kKey) || to == std::string_view::npos) {
    refuse("is not of the form steps=FIRST..LAST, as in steps=10..20");
  }
  const auto first = parse_number<int64_t>(text.substr(kKey.size(), to - kKey.size()));
  const auto last = parse_number<int64_t>(text.substr(to + kTo.size()));
  if (!first || !last) refuse("does not contain two integers, as in steps=10..20");
  const StepWindow window{*first, *last};
  if (window.first < 1) refuse("begins before the first step, which is step 1");
  if (window.last < window.first) refuse("ends before it begins");
  if (window.last - window.first >= kMaxProfiledSteps) {
    refuse(fmt::format("is too long; at most {} steps are profiled", kMaxProfiledSteps));
  }
  return window;
}

std::string to_string(const StepWindow& window) {
  if (window.steps() == 1) return fmt::format("step {}", window.first);
  return fmt::format("steps {} to {}", window.first, window.last);
}

}  // namespace trireme::train
