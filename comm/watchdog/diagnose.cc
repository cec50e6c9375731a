#include "comm/watchdog/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/watchdog/waits.h"

namespace trireme::comm {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
int64_t to_ns(double seconds) { return seconds > 0 ? static_cast<int64_t>(seconds * 1e9) : kNever; }

std::string seconds(int64_t ns) {
  const double value = static_cast<double>(ns) / 1e9;
  return value < 10 ? fmt::format("{:.1f} s", value) : fmt::format("{:.0f} s", value);
}

// Describes the calls that the rank is in, the longest first, and its phase.
std::string describe_position(const RankView& view) {
  std::vector<const CallView*> calls;
  for (const CallView& each : view.calls) {
    if (each.began != 0) calls.push_back(&each);
  }
  if (calls.empty()) return describe_phase(view);
  std::ranges::stable_sort(calls, {}, &CallView::began);
  std::string text;
  for (const CallView* call : calls) {
    text += fmt::format("{}{}", text.empty() ? "" : " and ", describe(*call));
  }
  return fmt::format("{}, last phase: {}", text, describe_phase(view));
}

class Diagnoser {
 public:
  explicit Diagnoser(const RunSnapshot& snapshot) : s_(snapshot), waits_(snapshot) {}

  std::optional<Diagnosis> diagnosis() const {
    const Failure failure = first_failure();
    const int64_t delay = failure.primary ? kFailureDelay : kPeerFailureDelay;
    if (failure.rank >= 0 && age(failure.when) < delay) {
      if (failure.primary) return {};
    } else if (failure.rank >= 0) {
      return failed(rank(failure.rank));
    }
    using Rule = std::optional<Diagnosis> (Diagnoser::*)() const;
    for (const Rule rule :
         {&Diagnoser::host_lost, &Diagnoser::mismatch, &Diagnoser::stopped, &Diagnoser::stuck,
          &Diagnoser::stuck_alone, &Diagnoser::deadlock, &Diagnoser::unreachable}) {
      if (auto found = (this->*rule)()) return found;
    }
    return {};
  }

 private:
  struct Failure {
    int64_t when = kNever;
    int rank = -1;
    bool primary = false;  // not caused_by_peer
  };
  const RankView& rank(int number) const { return s_.ranks[number]; }
  const Member& member(int number) const { return s_.members[number]; }
  int64_t age(int64_t when) const { return s_.age(when); }
  static bool running(const RankView& view) { return view.ended == 0; }
  // Returns true if the rank has left the run and no other rank waits for it.
  bool left(const RankView& view) const {
    return view.phase == Phase::kEnd && !waits_.awaited(view.rank);
  }

  int64_t timeout_of(const RankView& view) const {
    return to_ns(view.process_steps > 0 ? s_.options.timeout : s_.options.first_timeout);
  }
  // timeout_of(), extended while the rank saves a checkpoint.
  int64_t phase_timeout_of(const RankView& view) const {
    if (view.phase != Phase::kCheckpoint) return timeout_of(view);
    const int64_t saving = to_ns(s_.options.checkpoint);
    return timeout_of(view) > kNever - saving ? kNever : timeout_of(view) + saving;
  }

  // --- Parts of messages.

  std::string describe_rank(int number) const { return trireme::comm::describe_rank(s_, number); }

  // Returns "; rank 0 is waiting for it in ...", or an empty string if no rank is.
  std::string waiting_ranks(int number) const {
    std::map<std::string, std::vector<int>> ranks_by_call;
    for (const Wait& wait : waits_.all()) {
      if (std::ranges::find(wait.missing, number) == wait.missing.end()) continue;
      ranks_by_call[describe(*wait.call)].push_back(wait.rank->rank);
    }
    std::string text;
    for (const auto& [call, ranks] : ranks_by_call) {
      text += fmt::format("; {} {} waiting for it in {}", name_ranks(ranks),
                          ranks.size() == 1 ? "is" : "are", call);
    }
    return text;
  }

  std::string describe_host(int host) const {
    std::vector<int> ranks;
    for (int i = 0; i < std::ssize(s_.members); ++i) {
      if (member(i).host == host) ranks.push_back(i);
    }
    return fmt::format("host {} ({})", member(ranks.front()).host_name, name_ranks(ranks));
  }

  // --- The rules, in the order of precedence.

  Failure first_failure() const {
    Failure first;
    for (const RankView& view : s_.ranks) {
      Failure failure;
      if (view.failed != 0) {
        failure = {view.failed, view.rank, !view.caused_by_peer};
      } else if (!running(view) && !left(view)) {
        failure = {view.ended, view.rank, true};
      } else {
        continue;
      }
      const auto order = [](const Failure& each) { return std::tuple(!each.primary, each.when); };
      if (first.rank < 0 || order(failure) < order(first)) first = failure;
    }
    return first;
  }

  Diagnosis failed(const RankView& view) const {
    if (view.failed == 0) {
      return {Fault::kDead, view.rank, 1,
              fmt::format("{} died in {}: its process was killed, possibly for lack of memory, or "
                          "exited without reporting an error",
                          describe_rank(view.rank), describe_position(view))};
    }
    const int code = view.exit_code != 0 ? view.exit_code : 1;
    if (view.failure.starts_with(kMismatch)) {
      return {Fault::kDesync, view.rank, code, view.failure};
    }
    return {Fault::kFailed, view.rank, code,
            fmt::format("{} failed in {}: {}", describe_rank(view.rank), describe_position(view),
                        view.failure)};
  }

  // Returns true for another host of which at least one rank has not left the run.
  bool has_remote_ranks(int host) const {
    return host != member(s_.own_rank).host &&
           std::ranges::any_of(s_.ranks, [&](const RankView& each) {
             return member(each.rank).host == host && !left(each);
           });
  }

  const RankView& first_rank_of(int host) const {
    return *std::ranges::find_if(
        s_.ranks, [&](const RankView& each) { return member(each.rank).host == host; });
  }

  std::optional<Diagnosis> host_lost() const {
    for (int host = 0; host < std::ssize(s_.hosts); ++host) {
      const HostView& view = s_.hosts[host];
      if (view.closed == 0 || age(view.closed) < kConfirmDelay || !has_remote_ranks(host)) continue;
      const RankView& first = first_rank_of(host);
      return Diagnosis{Fault::kHostLost, first.rank, 1,
                       fmt::format("{} is lost: all connections to it closed {} ago; {} was last "
                                   "seen in {}",
                                   describe_host(host), seconds(age(view.closed)),
                                   describe_rank(first.rank), describe_position(first))};
    }
    return {};
  }

  // Finds different collectives with the same number.
  std::optional<Diagnosis> mismatch() const {
    for (const uint64_t group : waits_.groups()) {
      std::map<uint64_t, std::vector<Caller>> by_number;
      for (const RankView& view : s_.ranks) {
        const CallView* call = call_in(view, group);
        if (!call) continue;
        // Ranks that have just begun a call may still find the mismatch themselves.
        const bool sure = call->began == 0 || age(call->began) >= kConfirmDelay;
        const bool known = !call->operation.empty() && !is_transfer(call->operation);
        if (known && sure) by_number[call->sequence].push_back({&view, call});
      }
      for (const auto& [number, callers] : by_number) {
        if (auto found = mismatch(callers)) return found;
      }
    }
    return {};
  }

  std::optional<Diagnosis> mismatch(const std::vector<Caller>& all) const {
    const auto operation = [](const CallView& call) {
      return std::tuple(call.operation, call.bytes, call.bucket, call.step);
    };
    const auto key = [&](const CallView& call) { return std::pair(operation(call), call.dtype); };
    std::map<decltype(key({})), std::vector<Caller>> by_call;
    for (const Caller& each : all) by_call[key(*each.call)].push_back(each);
    if (by_call.size() < 2) return {};
    // The smallest set of ranks with equal calls is at fault; of equally small sets, the one with
    // the highest first rank.
    std::vector<std::vector<Caller>> sorted;
    for (const auto& [call, callers] : by_call) sorted.push_back(callers);
    std::ranges::sort(sorted, {}, [](const auto& callers) {
      return std::tuple(callers.size(), -callers.front().rank->rank);
    });
    const Caller& minority = sorted.front().front();
    const Caller& majority = sorted.back().front();
    const bool odd_one_out = sorted.front().size() < sorted.back().size();
    const bool only_dtypes = operation(*minority.call) == operation(*majority.call);
    return Diagnosis{
        Fault::kDesync, odd_one_out ? minority.rank->rank : -1, 1,
        fmt::format("{}: {}, but {}", kMismatch, describe_caller(minority, only_dtypes),
                    describe_caller(majority, only_dtypes))};
  }

  std::string describe_caller(const Caller& caller, bool with_dtype = false) const {
    const CallView& call = *caller.call;
    return fmt::format("{} {} in {}, {} bytes{}, in step {}, last phase: {}",
                       describe_rank(caller.rank->rank), call.began != 0 ? "is" : "was",
                       describe(call), call.bytes,
                       with_dtype ? fmt::format(" of {}", name_of(call.dtype)) : "", call.step + 1,
                       describe_phase(*caller.rank));
  }

  std::optional<Diagnosis> stopped() const {
    for (const RankView& view : s_.ranks) {
      const int64_t silence = age(view.heartbeat);
      if (!running(view) || left(view) || !s_.is_fresh(view) || silence < timeout_of(view))
        continue;
      const bool by_signal = view.state == 'T' || view.state == 't';
      const std::string problem =
          by_signal ? fmt::format("was suspended {} ago (SIGSTOP or a debugger)", seconds(silence))
                    : fmt::format("has sent no heartbeat for {}", seconds(silence));
      return Diagnosis{Fault::kStopped, view.rank, 1,
                       fmt::format("{} {} in {}{}", describe_rank(view.rank), problem,
                                   describe_position(view), waiting_ranks(view.rank))};
    }
    return {};
  }

  // Finds the rank that others have waited for longest, if it is not waiting itself.
  std::optional<Diagnosis> stuck() const {
    std::map<int, const Wait*> first_wait;  // by awaited rank
    for (const Wait& wait : waits_.all()) {
      for (const int number : wait.missing) {
        if (waits_.waiting(number)) continue;
        const Wait*& first = first_wait[number];
        if (!first || wait.call->began < first->call->began) first = &wait;
      }
    }
    const RankView* latest = nullptr;
    int64_t longest = 0;
    for (const auto& [number, wait] : first_wait) {
      const RankView& view = rank(number);
      if (!s_.is_fresh(view) || !s_.has_heartbeat(view)) continue;  // other rules handle this
      if (age(wait->call->began) >= kConfirmDelay && view.step > wait->rank->step + 1) {
        return ran_ahead(view, *wait);
      }
      const int64_t late = age(std::max(wait->call->began, view.since));
      if (late < phase_timeout_of(view) || late <= longest) continue;
      latest = &view;
      longest = late;
    }
    if (!latest) return {};
    return Diagnosis{Fault::kStuck, latest->rank, 1,
                     fmt::format("{} has been stuck in {} for {}{}", describe_rank(latest->rank),
                                 describe_phase(*latest), seconds(age(latest->since)),
                                 waiting_ranks(latest->rank))};
  }

  Diagnosis ran_ahead(const RankView& view, const Wait& wait) const {
    return {Fault::kDesync, view.rank, 1,
            fmt::format("{}: {} is in {} but never called {}, in which others are waiting: {}",
                        kMismatch, describe_rank(view.rank), describe_phase(view),
                        describe(*wait.call), describe_caller(wait))};
  }

  // A single rank has no other that could wait for it, but it can be stuck waiting for samples.
  std::optional<Diagnosis> stuck_alone() const {
    const RankView& view = rank(s_.own_rank);
    if (s_.ranks.size() > 1 || view.phase != Phase::kData) return {};
    if (age(view.since) < timeout_of(view)) return {};
    return Diagnosis{Fault::kStuck, view.rank, 1,
                     fmt::format("{} has been stuck in {} for {}", describe_rank(view.rank),
                                 describe_phase(view), seconds(age(view.since)))};
  }

  // Returns a wait that has exceeded the timeout, or null.
  const Wait* overdue() const {
    for (const Wait& wait : waits_.all()) {
      if (age(wait.call->began) >= timeout_of(*wait.rank)) return &wait;
    }
    return nullptr;
  }

  // Finds an overdue call that no rank is missing in, or in which all missing ranks are waiting in
  // other calls.
  std::optional<Diagnosis> deadlock() const {
    const bool all_seen = std::ranges::all_of(s_.ranks, [&](const RankView& each) {
      return !running(each) || (s_.is_fresh(each) && s_.has_heartbeat(each));
    });
    if (!overdue() || !all_seen || waits_.awaited_rank_may_call()) return {};
    const std::vector<uint64_t>& groups = waits_.groups();
    std::map<std::pair<ptrdiff_t, uint64_t>, std::vector<const Wait*>> by_call;
    for (const Wait& wait : waits_.all()) {
      if (age(wait.call->began) < timeout_of(*wait.rank)) continue;
      if (wait.missing.empty()) return no_progress(wait);
      const auto group = std::ranges::find(groups, wait.call->group) - groups.begin();
      by_call[{group, wait.call->sequence}].push_back(&wait);
    }
    std::string text = fmt::format("{}: the ranks wait for each other", kMismatch);
    for (const auto& [call, same] : by_call) {
      text += fmt::format("; {}", describe_caller(*same.front()));
      if (same.size() == 1) continue;
      std::vector<int> others;
      for (const Wait* wait : std::span(same).subspan(1)) others.push_back(wait->rank->rank);
      text += fmt::format(", as {} {}", others.size() == 1 ? "is" : "are", name_ranks(others));
    }
    return Diagnosis{Fault::kDesync, -1, 1, text};
  }

  Diagnosis no_progress(const Wait& late) const {
    std::vector<int> ranks;
    for (const Wait& wait : waits_.all()) {
      if (wait.call->group == late.call->group && wait.call->sequence == late.call->sequence) {
        ranks.push_back(wait.rank->rank);
      }
    }
    const bool all = ranks.size() == s_.ranks.size();
    return {Fault::kTransport, -1, 1,
            fmt::format("{} {} been in {} for {} without progress: MPI, NCCL or the network is "
                        "stuck; last phase: {}",
                        all ? fmt::format("all {} ranks", ranks.size()) : name_ranks(ranks),
                        all || ranks.size() > 1 ? "have" : "has", describe(*late.call),
                        seconds(age(late.call->began)), describe_phase(*late.rank))};
  }

  std::optional<Diagnosis> unreachable() const {
    for (int host = 0; host < std::ssize(s_.hosts); ++host) {
      if (!has_remote_ranks(host)) continue;
      const RankView& first = first_rank_of(host);
      const int64_t silence = age(s_.hosts[host].heard);
      // If a wait is overdue, a host that has been silent for half the timeout is the reason.
      const int64_t limit = overdue() ? timeout_of(first) / 2 : timeout_of(first);
      if (silence < limit) continue;
      return Diagnosis{Fault::kUnreachable, first.rank, 1,
                       fmt::format("{} is unreachable: no message from it for {}; {} was last seen "
                                   "in {}",
                                   describe_host(host), seconds(silence), describe_rank(first.rank),
                                   describe_position(first))};
    }
    return {};
  }

  const RunSnapshot& s_;
  Waits waits_;
};

}  // namespace

std::optional<Diagnosis> diagnose(const RunSnapshot& snapshot) {
  return Diagnoser(snapshot).diagnosis();
}

std::string describe_rank(const RunSnapshot& snapshot, int rank) {
  const Member& member = snapshot.members[rank];
  const auto index = static_cast<size_t>(rank);
  const std::string role = index < snapshot.roles.size() ? snapshot.roles[index] + ", " : "";
  return fmt::format("rank {} ({}host {}, pid {})", rank, role, member.host_name, member.pid);
}

}  // namespace trireme::comm
