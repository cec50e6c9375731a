// A fixture that constructs snapshots of a run by hand.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/watchdog/diagnose.h"

namespace trireme::comm {

inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr int64_t kNow = 1000 * kSecond;

// Four ranks in step 13, all seen just now. The timeout is 10 s, and 60 s before the first step.
class DiagnoseTest : public testing::Test {
 protected:
  explicit DiagnoseTest(int ranks = 4, int hosts = 1) {
    s.now = kNow;
    s.tick = kSecond / 4;
    s.awake_since = 1;
    s.options = {
        .timeout = 10, .first_timeout = 60, .checkpoint = 100, .straggler = 0.5, .log = {}};
    s.hosts.resize(static_cast<size_t>(hosts));
    for (HostView& host : s.hosts) host.heard = kNow;
    for (int i = 0; i < ranks; ++i) {
      const int host = i * hosts / ranks;
      s.members.push_back({host, std::string(1, static_cast<char>('a' + host)), 800 + i, 1});
      RankView& view = s.ranks.emplace_back();
      view.rank = i;
      view.seen = view.heartbeat = kNow;
      view.step = 12;
      view.process_steps = 12;
      enter(i, Phase::kForward, 0.1);
      // Two groups of all ranks.
      for (uint64_t group = Group::kWorld; group < 3; ++group) {
        CallView& call = view.calls.emplace_back();
        call.sequence = 40;
        call.group = group;
      }
    }
  }

  RankView& rank(int number) { return s.ranks[static_cast<size_t>(number)]; }
  static int64_t ago(double seconds) { return kNow - static_cast<int64_t>(seconds * 1e9); }

  void enter(int number, Phase phase, double seconds_ago) {
    rank(number).phase = phase;
    rank(number).since = ago(seconds_ago);
  }
  // Puts the rank into the next collective of one of its groups.
  CallView& wait(int number, double seconds_ago, size_t index = 1) {
    CallView& call = rank(number).calls[index];
    ++call.sequence;
    call.began = ago(seconds_ago);
    call.step = 12;
    call.bytes = 400;
    call.operation = "all_reduce_sum";
    if (index == 1) set_bucket(call, 1);
    return call;
  }
  static void set_bucket(CallView& call, int32_t bucket) {
    call.bucket = bucket;
    call.bucket_name = bucket == 0 ? "fc3" : "fc2.weight ... fc1.bias";
  }
  void die(int number, double seconds_ago) { rank(number).ended = ago(seconds_ago); }
  void fail(int number, double seconds_ago, const std::string& message, int code = 1,
            bool caused_by_peer = false) {
    rank(number).failed = ago(seconds_ago);
    rank(number).failure = message;
    rank(number).exit_code = code;
    rank(number).caused_by_peer = caused_by_peer;
  }
  void stop(int number, double seconds_ago) {
    rank(number).heartbeat = ago(seconds_ago);
    rank(number).state = 'T';
  }

  // Returns the diagnosis, which must be the same on all ranks of the host.
  Diagnosis expect_diagnosis(Fault fault, int rank_at_fault) {
    const auto diagnosis = diagnose(s);
    EXPECT_TRUE(diagnosis);
    if (!diagnosis) return {};
    EXPECT_EQ(diagnosis->fault, fault) << diagnosis->text;
    EXPECT_EQ(diagnosis->rank_at_fault, rank_at_fault) << diagnosis->text;
    EXPECT_EQ(diagnosis->text.find('\n'), std::string::npos) << diagnosis->text;
    for (int other = 0; other < std::ssize(s.ranks); ++other) {
      RunSnapshot seen_by_other = s;
      seen_by_other.own_rank = other;
      if (s.members[static_cast<size_t>(other)].host != s.members[0].host) continue;
      const auto same = diagnose(seen_by_other);
      EXPECT_TRUE(same && same->text == diagnosis->text) << "rank " << other;
    }
    return *diagnosis;
  }
  void expect_none() {
    const auto diagnosis = diagnose(s);
    EXPECT_FALSE(diagnosis) << diagnosis->text;
  }

  RunSnapshot s;
};

}  // namespace trireme::comm
