#include "comm/ledger.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/watchdog/view.h"
#include "core/error.h"

namespace trireme::comm {
namespace {

TEST(GroupTest, IdDependsOnParentNumberAndMembers) {
  const Group world = world_group(4);
  EXPECT_EQ(world.id, Group::kWorld);
  EXPECT_EQ(subgroup(world, 1, {0, 2}).id, subgroup(world, 1, {0, 2}).id);
  std::set<uint64_t> ids = {0, world.id};
  for (const uint64_t number : {1, 2, 3}) {
    for (const auto& ranks : std::vector<std::vector<int>>{{0, 2}, {2, 0}, {1, 3}, {0}}) {
      const Group group = subgroup(world, number, ranks);
      EXPECT_TRUE(ids.insert(group.id).second);
      EXPECT_TRUE(ids.insert(subgroup(group, 1, {group.ranks[0]}).id).second);
    }
  }
}

TEST(GroupTest, IsNamedByItsRanksUnlessTheyAreAll) {
  const Group world = world_group(7);
  EXPECT_EQ(world.name, "");
  EXPECT_EQ(subgroup(world, 1, {6, 5, 4, 3, 2, 1, 0}).name, "");
  EXPECT_EQ(subgroup(world, 1, {3}).name, "rank 3");
  EXPECT_EQ(subgroup(world, 1, {0, 1, 2, 3, 4}).name, "ranks 0, 1, 2, 3 and 4");
  EXPECT_EQ(subgroup(world, 1, {0, 1, 2, 3, 4, 5}).name, "ranks 0, 1, 2, 3 and 2 more");
  const Group pair = subgroup(world, 1, {2, 4});
  EXPECT_EQ(subgroup(pair, 1, {2, 4}).name, "ranks 2 and 4");
}

TEST(GroupTest, ConvertsToRanksOfTheWorld) {
  const Group group = subgroup(world_group(4), 1, {3, 1});
  EXPECT_EQ(group.world_rank(0), 3);
  EXPECT_EQ(group.world_rank(1), 1);
  EXPECT_EQ(group.world_rank(2), 2);
  EXPECT_EQ(group.world_rank(-1), -1);
}

TEST(SharedTextTest, IsTruncatedToItsSize) {
  SharedText<4> text;
  EXPECT_EQ(text.get(), "");
  text.set("abc");
  EXPECT_EQ(text.get(), "abc");
  text.set("abcdef");
  EXPECT_EQ(text.get(), "abcd");
  text.set("");
  EXPECT_EQ(text.get(), "");
}

TEST(SharedTextTest, ReadersNeverSeePartOfAText) {
  SharedText<64> text;
  std::atomic<bool> done{false};
  const std::string one(64, 'a');
  const std::string two(40, 'b');
  std::thread writer([&] {
    for (int i = 0; !done; ++i) {
      text.set(i % 2 == 0 ? one : two);
      if (i % 64 == 0) std::this_thread::yield();
    }
  });
  std::string mixed;
  for (int seen = 0; seen < 2000 && mixed.empty();) {
    const std::string read = text.get();
    if (!read.empty() && read != one && read != two) mixed = read;
    seen += read.empty() ? 0 : 1;
  }
  done = true;
  writer.join();
  EXPECT_EQ(mixed, "");
}

TEST(LedgerTest, RecordsPhaseStepAndDetail) {
  Ledger ledger;
  const int64_t before = monotonic_ns();
  ledger.enter(Phase::kData, 12);
  ledger.set_detail("sample 4711");
  RankView view = read_record(ledger.record(), before);
  EXPECT_EQ(view.phase, Phase::kData);
  EXPECT_EQ(view.step, 12);
  EXPECT_GE(view.since, before);
  EXPECT_EQ(view.detail, "sample 4711");
  ledger.enter(Phase::kForward);
  view = read_record(ledger.record(), before);
  EXPECT_EQ(view.phase, Phase::kForward);
  EXPECT_EQ(view.step, 12);
  EXPECT_EQ(view.detail, "");
}

Group some_group(uint64_t number) { return subgroup(world_group(4), number, {0, 2}); }

TEST(LedgerTest, CountsTheCollectivesOfEachGroup) {
  Ledger ledger;
  LedgerGroup first(ledger, world_group(4));
  LedgerGroup second(ledger, some_group(1));
  ledger.enter(Phase::kBackward, 7);
  ledger.set_bucket_names({"fc2", "fc1"});
  EXPECT_EQ(first.begin({"all_reduce_sum", 400, {.bucket = 1}}), 1u);
  EXPECT_EQ(read_record(ledger.record(), 0).calls[0].bucket_name, "fc1");
  first.end();
  EXPECT_EQ(first.begin({"MPI_Allgather", 8, {}, 5, DType::kI64}), 2u);
  const RankView view = read_record(ledger.record(), 0);
  ASSERT_EQ(view.calls.size(), 2u);
  const CallView& call = view.calls[0];
  EXPECT_EQ(call.group, Group::kWorld);
  EXPECT_EQ(call.group_name, "");
  EXPECT_EQ(call.sequence, 2u);
  EXPECT_GT(call.began, 0);
  EXPECT_EQ(call.step, 5);
  EXPECT_EQ(call.bytes, 8);
  EXPECT_EQ(call.dtype, DType::kI64);
  EXPECT_EQ(call.bucket, -1);
  EXPECT_EQ(call.bucket_name, "");
  EXPECT_EQ(call.operation, "MPI_Allgather");
  EXPECT_EQ(view.calls[1].group, some_group(1).id);
  EXPECT_EQ(view.calls[1].group_name, "ranks 0 and 2");
  EXPECT_EQ(view.calls[1].sequence, 0u);
  first.end();
  EXPECT_EQ(read_record(ledger.record(), 0).calls[0].began, 0);
  EXPECT_EQ(second.begin({"barrier"}), 1u);
  EXPECT_EQ(read_record(ledger.record(), 0).calls[1].step, 7);
}

// Members that take no part in a transfer do not count it.
TEST(LedgerTest, CountsTransfersSeparately) {
  Ledger ledger;
  LedgerGroup group(ledger, world_group(4));
  EXPECT_EQ(group.begin({"barrier"}), 1u);
  group.end();
  EXPECT_EQ(group.begin({"MPI_Send", 8}), 1u);
  group.end();
  EXPECT_EQ(group.begin({"MPI_Recv", 8}), 2u);
  const CallView call = read_record(ledger.record(), 0).calls.at(0);
  EXPECT_EQ(call.sequence, 1u);
  EXPECT_EQ(describe(call), "receive #2");
  group.end();
  EXPECT_EQ(group.begin({"barrier"}), 2u);
}

TEST(LedgerTest, LimitsTheNumberOfGroups) {
  Ledger ledger;
  std::vector<std::unique_ptr<LedgerGroup>> groups;
  for (int i = 0; i < LedgerRecord::kMaxGroups; ++i) {
    EXPECT_TRUE(ledger.has_room());
    groups.push_back(std::make_unique<LedgerGroup>(ledger, some_group(static_cast<uint64_t>(i))));
  }
  EXPECT_FALSE(ledger.has_room());
  try {
    LedgerGroup(ledger, some_group(99));
    FAIL() << "no exception";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "a rank can be in at most 16 process groups at a time");
  }
  groups[3]->begin({"barrier"});
  groups[3].reset();
  EXPECT_EQ(read_record(ledger.record(), 0).calls.size(), groups.size() - 1);
  LedgerGroup next(ledger, some_group(99));
  const RankView view = read_record(ledger.record(), 0);
  EXPECT_EQ(view.calls[3].group, some_group(99).id);
  EXPECT_EQ(view.calls[3].sequence, 0u);
  EXPECT_EQ(view.calls[3].began, 0);
}

TEST(LedgerTest, RecordsOnlyTheFirstFailure) {
  Ledger ledger;
  EXPECT_EQ(read_record(ledger.record(), 0).failed, 0);
  ledger.fail("shard-1.tar is cut short", 3, false);
  ledger.fail("a peer is gone", 1, true);
  const RankView view = read_record(ledger.record(), 0);
  EXPECT_GT(view.failed, 0);
  EXPECT_EQ(view.exit_code, 3);
  EXPECT_FALSE(view.caused_by_peer);
  EXPECT_EQ(view.failure, "shard-1.tar is cut short");
}

TEST(LedgerTest, MovesAllFieldsToASharedRecordAndBack) {
  Ledger ledger;
  LedgerGroup group(ledger, some_group(1));
  ledger.enter(Phase::kUpdate, 3);
  ledger.set_detail("of layer 2");
  ledger.step_done(0.5, 0.25);
  group.begin({"barrier"});
  const RankView before = read_record(ledger.record(), 1);
  LedgerRecord shared;
  ledger.move_to(&shared);
  EXPECT_EQ(&ledger.record(), &shared);
  EXPECT_EQ(read_record(shared, 1), before);
  group.end();
  ledger.enter(Phase::kEnd);
  const RankView after = read_record(shared, 1);
  EXPECT_EQ(after.process_steps, 1);
  EXPECT_EQ(after.step_ns, 500'000'000);
  EXPECT_EQ(after.waiting_ns, 250'000'000);
  ledger.move_to(nullptr);
  EXPECT_NE(&ledger.record(), &shared);
  EXPECT_EQ(read_record(ledger.record(), 1), after);
}

// Another process may read at any time, and the writer may die at any time.
TEST(LedgerTest, CanBeReadByAnotherProcessWhileItIsWritten) {
  void* memory = mmap(nullptr, sizeof(LedgerRecord), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* shared = new (memory) LedgerRecord;
  const pid_t writer = fork();
  if (writer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Ledger ledger;
    LedgerGroup group(ledger, world_group(1));
    ledger.move_to(shared);
    for (int64_t step = 0;; ++step) {
      ledger.enter(Phase::kData, step);
      // The fields depend on each other, so that an inconsistent read is noticed.
      group.begin({step % 2 == 0 ? "even" : "odd", step, {static_cast<int32_t>(step % 2)}, step});
      group.end();
    }
  }
  // Reads until enough calls were seen, however late the writer starts and however rarely it runs.
  for (int in_flight = 0; in_flight < 100'000;) {
    const RankView view = read_record(*shared, 0);
    if (view.calls.empty() || view.calls[0].began == 0) continue;
    const CallView& call = view.calls[0];
    ++in_flight;
    ASSERT_EQ(call.bytes, call.step);
    ASSERT_EQ(call.bucket, call.step % 2);
    ASSERT_EQ(call.sequence, static_cast<uint64_t>(call.step) + 1);
    if (!call.operation.empty()) {
      ASSERT_EQ(call.operation, call.step % 2 == 0 ? "even" : "odd");
    }
  }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  munmap(memory, sizeof(LedgerRecord));
}

TEST(ViewTest, DescribesThePhaseOfARank) {
  RankView view;
  EXPECT_EQ(describe_phase(view), "start");
  view.phase = Phase::kData;
  view.step = 12;
  view.detail = "sample 4711";
  EXPECT_EQ(describe_phase(view), "data of step 13 (sample 4711)");
  view.phase = Phase::kEvaluation;
  view.detail.clear();
  EXPECT_EQ(describe_phase(view), "evaluation after step 12");
}

TEST(ViewTest, DescribesACollective) {
  CallView call;
  call.sequence = 4182;
  call.operation = "all_reduce_sum";
  EXPECT_EQ(describe(call), "all-reduce #4182");
  call.bucket = 1;
  EXPECT_EQ(describe(call), "all-reduce #4182, bucket 1");
  call.bucket_name = "fc1.weight ... fc1.bias";
  EXPECT_EQ(describe(call), "all-reduce #4182, bucket 1 (fc1.weight ... fc1.bias)");
  call.group_name = "ranks 0 and 2";
  EXPECT_EQ(describe(call),
            "all-reduce #4182 of ranks 0 and 2, bucket 1 (fc1.weight ... fc1.bias)");
}

}  // namespace
}  // namespace trireme::comm
