#include "comm/watchdog/warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace trireme::comm {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kWindow = 5 * kSecond;
constexpr int64_t kWindowSteps = 20;
constexpr int64_t kFirstSteps = 10;  // caches, pages and clocks warm up
constexpr int64_t kFirstPause = 60 * kSecond;

// Of one rank over a window: per step.
struct Pace {
  double step_ns = 0;
  double waiting_ns = 0;
};

Pace pace(const RankView& begin, const RankView& end) {
  const auto steps = static_cast<double>(end.steps_here - begin.steps_here);
  return {static_cast<double>(end.step_ns - begin.step_ns) / steps,
          static_cast<double>(end.waiting_ns - begin.waiting_ns) / steps};
}

int64_t fewest_steps(const std::vector<RankView>& ranks) {
  int64_t steps = std::numeric_limits<int64_t>::max();
  for (const RankView& rank : ranks) steps = std::min(steps, rank.steps_here);
  return steps;
}

// The rank that waits least, how long the others wait on top of that, and the time of their step.
struct Straggler {
  int rank = 0;
  double lag_ns = 0;
  double step_ns = 0;
};

Straggler find_slowest(const std::vector<RankView>& begin, const std::vector<RankView>& end) {
  std::vector<Pace> paces;
  for (size_t i = 0; i < end.size(); ++i) paces.push_back(pace(begin[i], end[i]));
  const auto waits_less = [](const Pace& a, const Pace& b) { return a.waiting_ns < b.waiting_ns; };
  const auto slowest = std::ranges::min_element(paces, waits_less);
  Straggler found = {static_cast<int>(slowest - paces.begin()), 0, 0};
  const double own = slowest->waiting_ns;
  paces.erase(slowest);
  const auto next = std::ranges::min_element(paces, waits_less);
  found.lag_ns = next->waiting_ns - own;
  found.step_ns = next->step_ns;
  return found;
}

}  // namespace

std::vector<std::string> Warnings::look(const RunSnapshot& snapshot) {
  std::vector<std::string> warnings;
  if (snapshot.ranks.size() < 2) return warnings;
  look_for_stopped(snapshot, warnings);
  look_for_straggler(snapshot, warnings);
  return warnings;
}

void Warnings::look_for_stopped(const RunSnapshot& snapshot, std::vector<std::string>& warnings) {
  for (const RankView& rank : snapshot.ranks) {
    const auto before = stopped_.find(rank.rank);
    if (rank.state == 'T' || rank.state == 't') {
      if (before == stopped_.end()) stopped_[rank.rank] = rank.heartbeat;
      continue;
    }
    if (before == stopped_.end() || rank.heartbeat == before->second) continue;
    const double gap = static_cast<double>(rank.heartbeat - before->second) / 1e9;
    stopped_.erase(before);
    const int teller = rank.rank == 0 ? 1 : 0;
    if (snapshot.own_rank != teller) continue;
    warnings.push_back(fmt::format("{} was stopped for {:.1f} s and goes on, in {}",
                                   describe_rank(snapshot, rank.rank), gap, describe_phase(rank)));
  }
}

void Warnings::look_for_straggler(const RunSnapshot& snapshot, std::vector<std::string>& warnings) {
  const double limit = snapshot.options.straggler;
  if (limit <= 0 || snapshot.own_rank != 0 || fewest_steps(snapshot.ranks) < kFirstSteps) return;
  if (window_.empty()) {
    window_ = snapshot.ranks;
    window_began_ = snapshot.now;
    return;
  }
  const auto fewest = [&] {
    int64_t steps = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < window_.size(); ++i) {
      steps = std::min(steps, snapshot.ranks[i].steps_here - window_[i].steps_here);
    }
    return steps;
  };
  const int64_t steps = fewest();
  if (snapshot.now - window_began_ < kWindow || steps < kWindowSteps) return;
  const Straggler slowest = find_slowest(window_, snapshot.ranks);
  window_ = snapshot.ranks;
  window_began_ = snapshot.now;
  if (slowest.lag_ns < limit * slowest.step_ns) return;
  if (told_at_ != 0 && snapshot.now - told_at_ < pause_) return;
  pause_ = told_at_ == 0 ? kFirstPause : 2 * pause_;
  told_at_ = snapshot.now;
  warnings.push_back(fmt::format(
      "{} is slow: the other ranks wait {:.1f} ms of each step for it ({:.0f}%), over {} steps",
      describe_rank(snapshot, slowest.rank), slowest.lag_ns / 1e6,
      100 * slowest.lag_ns / slowest.step_ns, steps));
}

}  // namespace trireme::comm
