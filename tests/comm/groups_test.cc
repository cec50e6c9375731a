// Communicators that share ranks, with a watchdog that must not mistake their calls for mismatched
// collectives.
#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "comm/control.h"
#include "comm/watchdog.h"
#include "tests/comm/ranks.h"

namespace trireme::comm {
namespace {

using test::Hosts;

class GroupsTest : public testing::TestWithParam<test::Hosts> {
 protected:
  // Returns the group of ranks 0 and 1, 2 and 3, ... or, with a shift of one, of ranks 1 and 2, 3
  // and 4, ...
  std::unique_ptr<Communicator> split_pairs(int shift) {
    return world_->split((rank_ + shift) / 2, rank_);
  }

  std::unique_ptr<Communicator> world_ = test::join(GetParam());
  int rank_ = world_->rank();
  int ranks_ = world_->size();
  std::unique_ptr<Device> device_ = test::cpu();
  std::unique_ptr<Stream> stream_ = device_->create_stream(StreamKind::kCompute);
};

std::string identity(const Communicator& communicator) {
  return std::to_string(communicator.placement().group.id);
}

TEST_P(GroupsTest, MembersComputeTheSameUniqueId) {
  const auto pairs = split_pairs(0);
  const auto again = split_pairs(0);
  const auto shifted = split_pairs(1);
  const auto reversed = world_->split(0, -rank_);
  std::set<std::string> all = {identity(*world_)};
  for (Communicator* each : {pairs.get(), again.get(), shifted.get(), reversed.get()}) {
    for (const std::string& its : all_gather(*each, identity(*each))) {
      EXPECT_EQ(its, identity(*each));
    }
    EXPECT_TRUE(all.insert(identity(*each)).second);
    const Group& group = each->placement().group;
    ASSERT_EQ(std::ssize(group.ranks), each->size());
    EXPECT_EQ(group.world_rank(each->rank()), rank_);
  }
  EXPECT_EQ(world_->placement().group.name, "");
  EXPECT_EQ(reversed->placement().group.name, "");
  EXPECT_EQ(reversed->placement().group.ranks.front(), ranks_ - 1);
  if (ranks_ == 2) {
    EXPECT_EQ(pairs->placement().group.name, "");
    EXPECT_EQ(shifted->placement().group.name, rank_ == 0 ? "rank 0" : "rank 1");
  } else if (rank_ < 2) {
    EXPECT_EQ(pairs->placement().group.name, "ranks 0 and 1");
  }
  // Groups with different parents differ, too.
  const auto part = pairs->split(0, 0);
  for (const std::string& each : all_gather(*world_, identity(*part))) {
    EXPECT_EQ(all.count(each), 0u);
  }
}

// Each group has a stream of its own, and each rank queues its calls on them in a random order. The
// test takes longer than the timeout of the watchdog.
TEST_P(GroupsTest, AcceptsAnyOrderOfCallsOnDifferentGroups) {
  constexpr int kRounds = 60;
  world_->ledger().configure(
      {.timeout = 2, .first_timeout = 2, .checkpoint = 2, .straggler = 0, .log = {}});
  Watchdog watchdog(*world_);
  struct Member {
    std::unique_ptr<Communicator> communicator;
    int every;  // called every so many rounds
    std::unique_ptr<Stream> stream;
    int64_t value = 0;
  };
  {
    std::vector<Member> groups;
    groups.push_back({split_pairs(0), 1, nullptr});
    groups.push_back({split_pairs(1), 2, nullptr});
    groups.push_back({world_->split(rank_ % 2, rank_), 3, nullptr});
    groups.push_back({world_->split(0, rank_), 1, nullptr});
    for (Member& each : groups) each.stream = device_->create_stream(StreamKind::kBackground);
    std::mt19937 random(static_cast<uint32_t>(rank_ + 1));
    for (int round = 0; round < kRounds; ++round) {
      world_->ledger().enter(Phase::kForward, round);
      std::vector<size_t> order = {0, 1, 2, 3};
      std::ranges::shuffle(order, random);
      for (const size_t i : order) {
        Member& its = groups[i];
        if (round % its.every != 0) continue;
        its.value = rank_ + round;
        its.communicator->all_reduce_sum(&its.value, 1, DType::kI64, *its.stream,
                                         {static_cast<int32_t>(i)});
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
      }
      // A transfer between two members of a group.
      Member& last = groups.back();
      int64_t passed = round;
      const int from = round % ranks_;
      const int to = (from + 1) % ranks_;
      if (rank_ == from) last.communicator->send(&passed, 1, DType::kI64, to, *last.stream);
      if (rank_ == to) last.communicator->recv(&passed, 1, DType::kI64, from, *last.stream);
      if (round % 20 == 7 && rank_ == round / 20) {
        std::this_thread::sleep_for(std::chrono::milliseconds(700));
      }
      for (Member& its : groups) {
        its.stream->synchronize();
        if (round % its.every != 0) continue;
        const std::vector<int>& members = its.communicator->placement().group.ranks;
        int64_t expected = 0;
        for (const int member : members) expected += member + round;
        ASSERT_EQ(its.value, expected) << "round " << round;
      }
      ASSERT_EQ(passed, round);
    }
  }
  EXPECT_EQ(world_->ledger().diagnosis(), "");
  watchdog.finish();
}

// Mismatches that the ranks of a host find themselves. See watchdog_test for those that the
// watchdog finds.
TEST_P(GroupsTest, NamesRanksOfTheWorldInAMismatch) {
  if (GetParam() != test::Hosts::kReal)
    GTEST_SKIP() << "only ranks of one host compare what they do";
  const auto pairs = split_pairs(0);
  const auto shifted = split_pairs(1);
  Communicator& wrong = ranks_ == 2 ? *pairs : *shifted;
  const int odd_one = ranks_ == 2 ? 1 : 2;
  std::vector<int64_t> values(8, 1);
  if (wrong.size() == 2 && rank_ <= odd_one) {
    try {
      wrong.all_reduce_sum(values.data(), rank_ == odd_one ? 8 : 7, DType::kI64, *stream_);
      stream_->synchronize();
      FAIL() << "different counts were summed";
    } catch (const CommError& error) {
      const std::string message = error.what();
      const std::string begin =
          "mismatched collectives: rank " + std::to_string(odd_one) + " (pid ";
      EXPECT_TRUE(message.starts_with(begin)) << message;
      EXPECT_NE(message.find("but rank " + std::to_string(odd_one - 1) + " (pid "),
                std::string::npos)
          << message;
      const std::string call = ranks_ == 2 ? "all-reduce #1 in" : "all-reduce #1 of ranks 1 and 2";
      EXPECT_NE(message.find(call), std::string::npos) << message;
    }
    EXPECT_NE(wrong.failure(), "");
  }
  // The other groups are not affected.
  Communicator& right = ranks_ == 2 ? *shifted : *pairs;
  EXPECT_EQ(right.failure(), "");
  int64_t sum = 1;
  right.all_reduce_sum(&sum, 1, DType::kI64, *stream_);
  stream_->synchronize();
  EXPECT_EQ(sum, right.size());
}

TEST_P(GroupsTest, RefusesTooManyGroupsOnAllRanks) {
  std::vector<std::unique_ptr<Communicator>> parts;
  while (std::ssize(parts) < LedgerRecord::kMaxGroups - 1) parts.push_back(world_->split(0, rank_));
  try {
    world_->split(rank_, rank_);
    FAIL() << "no exception";
  } catch (const CommError& error) {
    EXPECT_EQ(std::string(error.what()), "split: rank " + std::to_string(ranks_ - 1) +
                                             " is already in 16 process groups, the maximum");
  }
  parts.pop_back();
  EXPECT_EQ(world_->split(rank_, rank_)->size(), 1);
}

INSTANTIATE_TEST_SUITE_P(On, GroupsTest,
                         testing::Values(test::Hosts::kReal, test::Hosts::kHalves,
                                         test::Hosts::kOneEach),
                         [](const auto& each) { return test::name_of(each.param); });

}  // namespace
}  // namespace trireme::comm
