#include "trainer/report/rank_lags.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme::train {
namespace {

constexpr auto kWindow = std::chrono::seconds(5);

}  // namespace

bool RankLags::due(Clock::time_point now) const {
  return window_start_.empty() || now - window_start_time_ >= kWindow;
}

std::optional<RankTimes> RankLags::update(std::vector<comm::RankPace> paces, Clock::time_point now,
                                          bool end) {
  if (paces.size() < 2 || (!end && !due(now))) return std::nullopt;
  if (window_start_.empty()) {
    // The first steps are not representative: they allocate memory and choose kernels.
    if (!std::ranges::all_of(paces, [](const comm::RankPace& pace) { return pace.steps > 0; })) {
      return std::nullopt;
    }
    window_start_ = std::move(paces);
    window_start_time_ = now;
    return std::nullopt;
  }
  RankTimes times;
  std::vector<double> waits;
  for (size_t i = 0; i < paces.size(); ++i) {
    const int64_t steps = paces[i].steps - window_start_[i].steps;
    if (steps == 0) return std::nullopt;
    const auto waited = static_cast<double>(paces[i].waiting_ns - window_start_[i].waiting_ns);
    waits.push_back(waited / static_cast<double>(steps) / 1e6);
    const auto duration = static_cast<double>(paces[i].step_ns - window_start_[i].step_ns);
    const auto idle = static_cast<double>(paces[i].idle_ns - window_start_[i].idle_ns);
    times.utilization.push_back(duration > 0 ? 1 - idle / duration : 0);
  }
  window_start_ = std::move(paces);
  window_start_time_ = now;
  const double all = std::accumulate(waits.begin(), waits.end(), 0.0);
  const auto others = static_cast<double>(waits.size() - 1);
  for (const double own : waits) {
    times.lag_ms.push_back(std::max(0.0, (all - own) / others - own));
  }
  return times;
}

}  // namespace trireme::train
