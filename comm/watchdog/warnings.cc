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

// Mean times of one rank per step.
struct Pace {
  double step_ns = 0;
  double waiting_ns = 0;
};

Pace pace(const RankView& begin, const RankView& end) {
  const auto steps = static_cast<double>(end.process_steps - begin.process_steps);
  return {static_cast<double>(end.step_ns - begin.step_ns) / steps,
          static_cast<double>(end.waiting_ns - begin.waiting_ns) / steps};
}

int64_t min_steps(const std::vector<RankView>& ranks) {
  int64_t steps = std::numeric_limits<int64_t>::max();
  for (const RankView& rank : ranks) steps = std::min(steps, rank.process_steps);
  return steps;
}

// The rank that waits least for others.
struct Straggler {
  int rank = 0;
  double lag_ns = 0;   // how much longer all other ranks wait in each step
  double step_ns = 0;  // duration of a step
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

std::vector<std::string> Warnings::update(const RunSnapshot& snapshot) {
  std::vector<std::string> warnings;
  if (snapshot.ranks.size() < 2) return warnings;
  find_resumed(snapshot, warnings);
  find_straggler(snapshot, warnings);
  return warnings;
}

void Warnings::find_resumed(const RunSnapshot& snapshot, std::vector<std::string>& warnings) {
  for (const RankView& rank : snapshot.ranks) {
    const auto before = suspended_.find(rank.rank);
    if (rank.state == 'T' || rank.state == 't') {
      if (before == suspended_.end()) suspended_[rank.rank] = rank.heartbeat;
      continue;
    }
    if (before == suspended_.end() || rank.heartbeat == before->second) continue;
    const double gap = static_cast<double>(rank.heartbeat - before->second) / 1e9;
    suspended_.erase(before);
    const int reporter = rank.rank == 0 ? 1 : 0;
    if (snapshot.own_rank != reporter) continue;
    warnings.push_back(fmt::format("{} was suspended for {:.1f} s and has resumed, in {}",
                                   describe_rank(snapshot, rank.rank), gap, describe_phase(rank)));
  }
}

void Warnings::find_straggler(const RunSnapshot& snapshot, std::vector<std::string>& warnings) {
  const double limit = snapshot.options.straggler;
  if (limit <= 0 || snapshot.own_rank != 0 || min_steps(snapshot.ranks) < kFirstSteps) return;
  if (window_.empty()) {
    window_ = snapshot.ranks;
    window_began_ = snapshot.now;
    return;
  }
  const auto window_steps = [&] {
    int64_t steps = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < window_.size(); ++i) {
      steps = std::min(steps, snapshot.ranks[i].process_steps - window_[i].process_steps);
    }
    return steps;
  };
  const int64_t steps = window_steps();
  if (snapshot.now - window_began_ < kWindow || steps < kWindowSteps) return;
  const Straggler slowest = find_slowest(window_, snapshot.ranks);
  window_ = snapshot.ranks;
  window_began_ = snapshot.now;
  if (slowest.lag_ns < limit * slowest.step_ns) return;
  if (warned_at_ != 0 && snapshot.now - warned_at_ < pause_) return;
  pause_ = warned_at_ == 0 ? kFirstPause : 2 * pause_;
  warned_at_ = snapshot.now;
  warnings.push_back(fmt::format(
      "{} is slow: the other ranks wait for it {:.1f} ms per step ({:.0f}% of the time), measured "
      "over {} steps",
      describe_rank(snapshot, slowest.rank), slowest.lag_ns / 1e6,
      100 * slowest.lag_ns / slowest.step_ns, steps));
}

}  // namespace trireme::comm
