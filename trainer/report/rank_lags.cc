#include "trainer/report/rank_lags.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme::train {
namespace {

constexpr auto kWindow = std::chrono::seconds(5);

}  // namespace

bool RankLags::due(Clock::time_point now) const {
  return begin_.empty() || now - began_ >= kWindow;
}

std::optional<std::vector<double>> RankLags::look(std::vector<comm::RankPace> paces,
                                                  Clock::time_point now, bool end) {
  if (paces.size() < 2 || (!end && !due(now))) return std::nullopt;
  if (begin_.empty()) {
    // The first steps, in which memory and kernels are found, say nothing.
    if (!std::ranges::all_of(paces, [](const comm::RankPace& pace) { return pace.steps > 0; })) {
      return std::nullopt;
    }
    begin_ = std::move(paces);
    began_ = now;
    return std::nullopt;
  }
  std::vector<double> waits;
  for (size_t i = 0; i < paces.size(); ++i) {
    const int64_t steps = paces[i].steps - begin_[i].steps;
    if (steps == 0) return std::nullopt;
    const auto waited = static_cast<double>(paces[i].waiting_ns - begin_[i].waiting_ns);
    waits.push_back(waited / static_cast<double>(steps) / 1e6);
  }
  begin_ = std::move(paces);
  began_ = now;
  const double all = std::accumulate(waits.begin(), waits.end(), 0.0);
  const auto others = static_cast<double>(waits.size() - 1);
  std::vector<double> lags;
  for (const double own : waits) lags.push_back(std::max(0.0, (all - own) / others - own));
  return lags;
}

}  // namespace trireme::train
