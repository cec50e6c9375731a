// The range of steps of a run that is profiled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::train {

// Steps are counted from 1, as in metrics.jsonl; both ends are inclusive.
struct StepWindow {
  int64_t first = 1;
  int64_t last = 1;
  int64_t steps() const { return last - first + 1; }
  bool operator==(const StepWindow&) const = default;
};

// The events of all steps of a window are in memory until it ends.
inline constexpr int64_t kMaxProfiledSteps = 1000;

// Parses "steps=10..20". Throws ConfigError if it is invalid.
StepWindow parse_step_window(std::string_view text);
// Returns "steps 10 to 20" or "step 7".
std::string to_string(const StepWindow& window);

}  // namespace trireme::train
