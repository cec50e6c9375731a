// Which steps of a run are to be profiled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::train {

// Steps as metrics.jsonl counts them, from 1; both ends included.
struct StepWindow {
  int64_t first = 1;
  int64_t last = 1;
  int64_t steps() const { return last - first + 1; }
  bool operator==(const StepWindow&) const = default;
};

// Every step of a window is kept in memory until its end.
inline constexpr int64_t kMaxProfiledSteps = 1000;

// "steps=10..20". Throws ConfigError that says what is wrong with it.
StepWindow parse_step_window(std::string_view text);
// "steps 10 to 20", "step 7"
std::string to_string(const StepWindow& window);

}  // namespace trireme::train
