#include "comm/watchdog/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <utility>

namespace trireme::comm {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Without a message, or a heartbeat, for so many ticks a view is too old to call anyone late by it.
constexpr int64_t kFreshTicks = 8;

int64_t to_ns(double seconds) { return seconds > 0 ? static_cast<int64_t>(seconds * 1e9) : kNever; }

std::string seconds(int64_t ns) {
  const double value = static_cast<double>(ns) / 1e9;
  return value < 10 ? fmt::format("{:.1f} s", value) : fmt::format("{:.0f} s", value);
}

// What a rank has called in a group; null where it is no member.
const CallView* call_in(const RankView& view, uint64_t group) {
  const auto found = std::ranges::find(view.calls, group, &CallView::group);
  return found == view.calls.end() ? nullptr : &*found;
}

class Diagnoser {
 public:
  explicit Diagnoser(const RunSnapshot& snapshot) : s_(snapshot) {
    find_groups();
    find_waits();
  }

  std::optional<Diagnosis> diagnosis() const {
    const Cause cause = earliest_cause();
    if (cause.rank >= 0 && age(cause.when) < (cause.primary ? kSettle : kPatience)) {
      if (cause.primary) return {};
    } else if (cause.rank >= 0) {
      return failed(rank(cause.rank));
    }
    using Rule = std::optional<Diagnosis> (Diagnoser::*)() const;
    for (const Rule rule :
         {&Diagnoser::host_lost, &Diagnoser::disagreement, &Diagnoser::stopped, &Diagnoser::missing,
          &Diagnoser::starved, &Diagnoser::deadlock, &Diagnoser::unreachable}) {
      if (auto found = (this->*rule)()) return found;
    }
    return {};
  }

 private:
  struct Cause {
    int64_t when = kNever;
    int rank = -1;
    bool primary = false;
  };
  struct Caller {
    const RankView* rank;
    const CallView* call;
  };
  // A rank that is in a call, and who has not come there.
  struct Wait : Caller {
    std::vector<int> missing;
  };

  const RankView& rank(int number) const { return s_.ranks[number]; }
  const Member& member(int number) const { return s_.members[number]; }
  int64_t age(int64_t when) const { return s_.now - std::max(when, s_.awake_since); }
  // Seen lately: of other hosts only what came by message is known.
  bool fresh(const RankView& view) const { return age(view.seen) <= kFreshTicks * s_.tick; }
  bool has_heartbeat(const RankView& view) const {
    return age(view.heartbeat) <= kFreshTicks * s_.tick;
  }
  static bool lives(const RankView& view) { return view.ended == 0; }
  // It has said goodbye, and nobody waits for it any more.
  bool gone(const RankView& view) const { return view.phase == Phase::kEnd && !missed(view.rank); }

  int64_t timeout_of(const RankView& view) const {
    return to_ns(view.steps_here > 0 ? s_.options.timeout : s_.options.first_timeout);
  }
  int64_t patience_with(const RankView& view) const {
    if (view.phase != Phase::kCheckpoint) return timeout_of(view);
    const int64_t saving = to_ns(s_.options.checkpoint);
    return timeout_of(view) > kNever - saving ? kNever : timeout_of(view) + saving;
  }

  void find_groups() {
    for (const RankView& view : s_.ranks) {
      for (const CallView& call : view.calls) {
        if (std::ranges::find(groups_, call.group) == groups_.end()) groups_.push_back(call.group);
      }
    }
  }

  void find_waits() {
    for (const RankView& view : s_.ranks) {
      if (!lives(view) || !fresh(view)) continue;
      for (const CallView& call : view.calls) {
        if (call.began == 0) continue;
        waits_.push_back({{&view, &call}, {}});
        if (!is_transfer(call.operation)) waits_.back().missing = behind(call);
      }
    }
  }

  // The members of the call's group that have not come to it.
  std::vector<int> behind(const CallView& call) const {
    std::vector<int> ranks;
    for (const RankView& other : s_.ranks) {
      const CallView* its = call_in(other, call.group);
      // Every rank is a member of the world, also before its ledger says so.
      const bool is_member = its || call.group == Group::kWorld;
      if (is_member && (its ? its->sequence : 0) < call.sequence) ranks.push_back(other.rank);
    }
    return ranks;
  }

  bool missed(int number) const {
    return std::ranges::any_of(waits_, [&](const Wait& each) {
      return std::ranges::find(each.missing, number) != each.missing.end();
    });
  }

  bool waits(int number) const {
    return std::ranges::any_of(waits_, [&](const Wait& each) { return each.rank->rank == number; });
  }

  // --- What is said.

  std::string who(int number) const { return describe_rank(s_, number); }

  // Where a rank is.
  std::string place(const RankView& view) const {
    const CallView* call = nullptr;
    for (const CallView& each : view.calls) {
      if (each.began != 0 && (!call || each.began < call->began)) call = &each;
    }
    if (!call) return describe_phase(view);
    return fmt::format("{}, last phase: {}", describe(*call, s_.bucket_names),
                       describe_phase(view));
  }

  // "; rank 0 waits for it in ...", or nothing.
  std::string who_waits_for(int number) const {
    std::map<std::string, std::vector<int>> ranks_by_call;
    for (const Wait& wait : waits_) {
      if (std::ranges::find(wait.missing, number) == wait.missing.end()) continue;
      ranks_by_call[describe(*wait.call, s_.bucket_names)].push_back(wait.rank->rank);
    }
    std::string text;
    for (const auto& [call, ranks] : ranks_by_call) {
      text += fmt::format("; {} {} for it in {}", name_ranks(ranks),
                          ranks.size() == 1 ? "waits" : "wait", call);
    }
    return text;
  }

  std::string name_host(int host) const {
    std::vector<int> ranks;
    for (int i = 0; i < std::ssize(s_.members); ++i) {
      if (member(i).host == host) ranks.push_back(i);
    }
    return fmt::format("host {} ({})", member(ranks.front()).host_name, name_ranks(ranks));
  }

  // --- The rules, in the order of precedence.

  Cause earliest_cause() const {
    Cause first;
    for (const RankView& view : s_.ranks) {
      Cause cause;
      if (view.failed != 0) {
        cause = {view.failed, view.rank, !view.from_a_peer};
      } else if (!lives(view) && !gone(view)) {
        cause = {view.ended, view.rank, true};
      } else {
        continue;
      }
      const auto order = [](const Cause& each) { return std::tuple(!each.primary, each.when); };
      if (first.rank < 0 || order(cause) < order(first)) first = cause;
    }
    return first;
  }

  Diagnosis failed(const RankView& view) const {
    if (view.failed == 0) {
      return {Fault::kDead, view.rank, 1,
              fmt::format("{} died in {}: its process ended without a word (killed, perhaps for "
                          "lack of memory, or it exited)",
                          who(view.rank), place(view))};
    }
    const int code = view.exit_code != 0 ? view.exit_code : 1;
    if (view.failure.starts_with(kDisagreement)) {
      return {Fault::kDesync, view.rank, code, view.failure};
    }
    return {Fault::kFailed, view.rank, code,
            fmt::format("{} failed in {}: {}", who(view.rank), place(view), view.failure)};
  }

  // Another host that a rank of it has not taken leave of.
  bool concerns(int host) const {
    return host != member(s_.own_rank).host &&
           std::ranges::any_of(s_.ranks, [&](const RankView& each) {
             return member(each.rank).host == host && !gone(each);
           });
  }

  const RankView& first_of(int host) const {
    return *std::ranges::find_if(
        s_.ranks, [&](const RankView& each) { return member(each.rank).host == host; });
  }

  std::optional<Diagnosis> host_lost() const {
    for (int host = 0; host < std::ssize(s_.hosts); ++host) {
      const HostView& view = s_.hosts[host];
      if (view.closed == 0 || age(view.closed) < kSure || !concerns(host)) continue;
      const RankView& first = first_of(host);
      return Diagnosis{
          Fault::kHostLost, first.rank, 1,
          fmt::format("{} is lost: all connections to it were closed {} ago; {} was "
                      "last in {}",
                      name_host(host), seconds(age(view.closed)), who(first.rank), place(first))};
    }
    return {};
  }

  // Different collectives under the same number.
  std::optional<Diagnosis> disagreement() const {
    for (const uint64_t group : groups_) {
      std::map<uint64_t, std::vector<Caller>> by_number;
      for (const RankView& view : s_.ranks) {
        const CallView* call = call_in(view, group);
        if (!call) continue;
        // What has just begun the ranks may still find out themselves.
        const bool sure = call->began == 0 || age(call->began) >= kSure;
        const bool known = !call->operation.empty() && !is_transfer(call->operation);
        if (known && sure) by_number[call->sequence].push_back({&view, call});
      }
      for (const auto& [number, same] : by_number) {
        if (auto found = disagreement(same)) return found;
      }
    }
    return {};
  }

  std::optional<Diagnosis> disagreement(const std::vector<Caller>& same) const {
    const auto what = [](const CallView& call) {
      return std::tuple(call.operation, call.bytes, call.bucket, call.step);
    };
    const auto key = [&](const CallView& call) { return std::pair(what(call), call.dtype); };
    std::map<decltype(key({})), std::vector<Caller>> alike;
    for (const Caller& each : same) alike[key(*each.call)].push_back(each);
    if (alike.size() < 2) return {};
    // The fewest are told as those that went astray; of as many, those with the later ranks.
    std::vector<std::vector<Caller>> sorted;
    for (const auto& [call, callers] : alike) sorted.push_back(callers);
    std::ranges::sort(sorted, {}, [](const auto& callers) {
      return std::tuple(callers.size(), -callers.front().rank->rank);
    });
    const Caller& stray = sorted.front().front();
    const Caller& right = sorted.back().front();
    const bool odd_one_out = sorted.front().size() < sorted.back().size();
    const bool only_dtypes = what(*stray.call) == what(*right.call);
    return Diagnosis{
        Fault::kDesync, odd_one_out ? stray.rank->rank : -1, 1,
        fmt::format("{}: {}, but {}", kDisagreement, describe_caller(stray, only_dtypes),
                    describe_caller(right, only_dtypes))};
  }

  std::string describe_caller(const Caller& caller, bool with_dtype = false) const {
    const CallView& call = *caller.call;
    return fmt::format("{} {} in {}, {} bytes{}, in step {}, last phase: {}",
                       who(caller.rank->rank), call.began != 0 ? "is" : "was",
                       describe(call, s_.bucket_names), call.bytes,
                       with_dtype ? fmt::format(" of {}", name_of(call.dtype)) : "", call.step + 1,
                       describe_phase(*caller.rank));
  }

  std::optional<Diagnosis> stopped() const {
    for (const RankView& view : s_.ranks) {
      const int64_t silence = age(view.heartbeat);
      if (!lives(view) || gone(view) || !fresh(view) || silence < timeout_of(view)) continue;
      const bool by_signal = view.state == 'T' || view.state == 't';
      const std::string what =
          by_signal ? fmt::format("stopped {} ago", seconds(silence))
                    : fmt::format("has given no sign of life for {}", seconds(silence));
      return Diagnosis{Fault::kStopped, view.rank, 1,
                       fmt::format("{} {} in {}{}", who(view.rank), what, place(view),
                                   who_waits_for(view.rank))};
    }
    return {};
  }

  // Ranks that others wait for, and that wait for nobody.
  std::optional<Diagnosis> missing() const {
    std::map<int, const Wait*> first_wait;  // by the rank that is waited for
    for (const Wait& wait : waits_) {
      for (const int number : wait.missing) {
        if (waits(number)) continue;
        const Wait*& first = first_wait[number];
        if (!first || wait.call->began < first->call->began) first = &wait;
      }
    }
    const RankView* latest = nullptr;
    int64_t longest = 0;
    for (const auto& [number, wait] : first_wait) {
      const RankView& view = rank(number);
      if (!fresh(view) || !has_heartbeat(view)) continue;  // then that is what is wrong
      if (age(wait->call->began) >= kSure && view.step > wait->rank->step + 1) {
        return gone_ahead(view, *wait);
      }
      const int64_t late = age(std::max(wait->call->began, view.since));
      if (late < patience_with(view) || late <= longest) continue;
      latest = &view;
      longest = late;
    }
    if (!latest) return {};
    return Diagnosis{Fault::kStuck, latest->rank, 1,
                     fmt::format("{} is stuck in {}, which it entered {} ago{}", who(latest->rank),
                                 describe_phase(*latest), seconds(age(latest->since)),
                                 who_waits_for(latest->rank))};
  }

  Diagnosis gone_ahead(const RankView& view, const Wait& wait) const {
    return {Fault::kDesync, view.rank, 1,
            fmt::format("{}: {} is in {} without having come to {}, in which {} waits",
                        kDisagreement, who(view.rank), describe_phase(view),
                        describe(*wait.call, s_.bucket_names), describe_caller(wait))};
  }

  // Nobody waits for a rank that is alone, but its samples may not come either.
  std::optional<Diagnosis> starved() const {
    const RankView& view = rank(s_.own_rank);
    if (s_.ranks.size() > 1 || view.phase != Phase::kData) return {};
    if (age(view.since) < timeout_of(view)) return {};
    return Diagnosis{Fault::kStuck, view.rank, 1,
                     fmt::format("{} is stuck in {}, which it entered {} ago", who(view.rank),
                                 describe_phase(view), seconds(age(view.since)))};
  }

  // Whether someone has waited for longer than anyone may.
  const Wait* overdue() const {
    for (const Wait& wait : waits_) {
      if (age(wait.call->began) >= timeout_of(*wait.rank)) return &wait;
    }
    return nullptr;
  }

  // Whether some rank is where nobody waits for others, and may still come.
  bool someone_may_come() const {
    return std::ranges::any_of(waits_, [&](const Wait& wait) {
      return std::ranges::any_of(wait.missing, [&](int each) { return !waits(each); });
    });
  }

  // Nobody is missing, or all who are wait themselves.
  std::optional<Diagnosis> deadlock() const {
    const bool all_seen = std::ranges::all_of(s_.ranks, [&](const RankView& each) {
      return !lives(each) || (fresh(each) && has_heartbeat(each));
    });
    if (!overdue() || !all_seen || someone_may_come()) return {};
    std::map<std::pair<ptrdiff_t, uint64_t>, std::vector<const Wait*>> by_call;
    for (const Wait& wait : waits_) {
      if (age(wait.call->began) < timeout_of(*wait.rank)) continue;
      if (wait.missing.empty()) return nothing_moves(wait);
      const auto group = std::ranges::find(groups_, wait.call->group) - groups_.begin();
      by_call[{group, wait.call->sequence}].push_back(&wait);
    }
    std::string text = fmt::format("{}: each waits for another", kDisagreement);
    for (const auto& [call, same] : by_call) {
      text += fmt::format("; {}", describe_caller(*same.front()));
      if (same.size() == 1) continue;
      std::vector<int> others;
      for (const Wait* wait : std::span(same).subspan(1)) others.push_back(wait->rank->rank);
      text += fmt::format(", and so {} {}", others.size() == 1 ? "is" : "are", name_ranks(others));
    }
    return Diagnosis{Fault::kDesync, -1, 1, text};
  }

  Diagnosis nothing_moves(const Wait& stuck) const {
    std::vector<int> ranks;
    for (const Wait& wait : waits_) {
      if (wait.call->group == stuck.call->group && wait.call->sequence == stuck.call->sequence) {
        ranks.push_back(wait.rank->rank);
      }
    }
    const bool all = ranks.size() == s_.ranks.size();
    return {
        Fault::kTransport, -1, 1,
        fmt::format("{} {} in {}, and have been for {}, without anything moving: MPI, NCCL or "
                    "the network is stuck; last phase: {}",
                    all ? fmt::format("all {} ranks", ranks.size()) : name_ranks(ranks),
                    all || ranks.size() > 1 ? "are" : "is", describe(*stuck.call, s_.bucket_names),
                    seconds(age(stuck.call->began)), describe_phase(*stuck.rank))};
  }

  std::optional<Diagnosis> unreachable() const {
    for (int host = 0; host < std::ssize(s_.hosts); ++host) {
      if (!concerns(host)) continue;
      const RankView& first = first_of(host);
      const int64_t silence = age(s_.hosts[host].heard);
      // Once someone waits for too long, half of it is enough to tell whom for.
      const int64_t enough = overdue() ? timeout_of(first) / 2 : timeout_of(first);
      if (silence < enough) continue;
      return Diagnosis{
          Fault::kUnreachable, first.rank, 1,
          fmt::format("{} is unreachable: nothing has come from it for {}; {} was last "
                      "in {}",
                      name_host(host), seconds(silence), who(first.rank), place(first))};
    }
    return {};
  }

  const RunSnapshot& s_;
  std::vector<uint64_t> groups_;  // in the order in which the lowest members joined them
  std::vector<Wait> waits_;
};

}  // namespace

std::optional<Diagnosis> diagnose(const RunSnapshot& snapshot) {
  return Diagnoser(snapshot).diagnosis();
}

std::string describe_rank(const RunSnapshot& snapshot, int rank) {
  const Member& member = snapshot.members[rank];
  return fmt::format("rank {} (host {}, pid {})", rank, member.host_name, member.pid);
}

}  // namespace trireme::comm
