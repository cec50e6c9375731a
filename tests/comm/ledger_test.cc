#include "comm/ledger.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <string>
#include <thread>

#include "comm/watchdog/view.h"

namespace trireme {
namespace {

TEST(SharedTextTest, IsCutToItsPlace) {
  SharedText<4> text;
  EXPECT_EQ(text.get(), "");
  text.set("abc");
  EXPECT_EQ(text.get(), "abc");
  text.set("abcdef");
  EXPECT_EQ(text.get(), "abcd");
  text.set("");
  EXPECT_EQ(text.get(), "");
}

TEST(SharedTextTest, IsNeverReadInHalves) {
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

TEST(LedgerTest, NotesWhereItsRankIs) {
  Ledger ledger;
  const int64_t before = monotonic_ns();
  ledger.enter(Phase::kData, 12);
  ledger.detail("sample 4711");
  RankView view = look(ledger.page(), before);
  EXPECT_EQ(view.phase, Phase::kData);
  EXPECT_EQ(view.step, 12);
  EXPECT_GE(view.since, before);
  EXPECT_EQ(view.detail, "sample 4711");
  ledger.enter(Phase::kForward);
  view = look(ledger.page(), before);
  EXPECT_EQ(view.phase, Phase::kForward);
  EXPECT_EQ(view.step, 12);
  EXPECT_EQ(view.detail, "");
}

TEST(LedgerTest, CountsTheCollectivesOfEachLane) {
  Ledger ledger;
  const int first = ledger.add_lane();
  const int second = ledger.add_lane();
  ledger.enter(Phase::kBackward, 7);
  EXPECT_EQ(ledger.begin(first, "all_reduce_sum", 400, 3), 1u);
  ledger.end(first);
  EXPECT_EQ(ledger.begin(first, "MPI_Allgather", 8, -1, 5), 2u);
  const RankView view = look(ledger.page(), 0);
  const CallView& call = view.calls[static_cast<size_t>(first)];
  EXPECT_EQ(call.sequence, 2u);
  EXPECT_GT(call.began, 0);
  EXPECT_EQ(call.step, 5);
  EXPECT_EQ(call.bytes, 8);
  EXPECT_EQ(call.bucket, -1);
  EXPECT_EQ(call.operation, "MPI_Allgather");
  EXPECT_EQ(view.calls[static_cast<size_t>(second)].sequence, 0u);
  ledger.end(first);
  EXPECT_EQ(look(ledger.page(), 0).calls[static_cast<size_t>(first)].began, 0);
  EXPECT_EQ(ledger.begin(second, "barrier", 0, -1), 1u);
  EXPECT_EQ(look(ledger.page(), 0).calls[static_cast<size_t>(second)].step, 7);
}

TEST(LedgerTest, MoreLanesThanThereIsRoomForShareTheLast) {
  Ledger ledger;
  for (int i = 0; i < LedgerPage::kLanes - 1; ++i) EXPECT_EQ(ledger.add_lane(), i);
  EXPECT_EQ(ledger.add_lane(), LedgerPage::kLanes - 1);
  EXPECT_EQ(ledger.add_lane(), LedgerPage::kLanes - 1);
}

TEST(LedgerTest, OnlyTheFirstFailureStays) {
  Ledger ledger;
  EXPECT_EQ(look(ledger.page(), 0).failed, 0);
  ledger.fail("shard-1.tar is cut short", 3, false);
  ledger.fail("a peer is gone", 1, true);
  const RankView view = look(ledger.page(), 0);
  EXPECT_GT(view.failed, 0);
  EXPECT_EQ(view.exit_code, 3);
  EXPECT_FALSE(view.from_a_peer);
  EXPECT_EQ(view.failure, "shard-1.tar is cut short");
}

// All that it knows goes along, there and back.
TEST(LedgerTest, MovesToAPageOfOthersAndBack) {
  Ledger ledger;
  const int lane = ledger.add_lane();
  ledger.enter(Phase::kUpdate, 3);
  ledger.detail("of layer 2");
  ledger.step_done(0.5, 0.25);
  ledger.begin(lane, "barrier", 0, -1);
  const RankView before = look(ledger.page(), 1);
  LedgerPage page;
  ledger.move_to(&page);
  EXPECT_EQ(&ledger.page(), &page);
  EXPECT_EQ(look(page, 1), before);
  ledger.end(lane);
  ledger.enter(Phase::kEnd);
  const RankView after = look(page, 1);
  EXPECT_EQ(after.steps_here, 1);
  EXPECT_EQ(after.step_ns, 500'000'000);
  EXPECT_EQ(after.waiting_ns, 250'000'000);
  ledger.move_to(nullptr);
  EXPECT_NE(&ledger.page(), &page);
  EXPECT_EQ(look(ledger.page(), 1), after);
}

// A reader in another process may come at any moment, and the writer may die at any.
TEST(LedgerTest, IsReadByAnotherProcessWhileItIsWritten) {
  void* memory =
      mmap(nullptr, sizeof(LedgerPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* page = new (memory) LedgerPage;
  const pid_t writer = fork();
  if (writer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Ledger ledger;
    ledger.move_to(page);
    for (int64_t step = 0;; ++step) {
      ledger.enter(Phase::kData, step);
      // Fields that belong together, so that a mixture shows.
      ledger.begin(0, step % 2 == 0 ? "even" : "odd", step, static_cast<int>(step % 2), step);
      ledger.end(0);
    }
  }
  // Until enough was seen, however late the writer starts and however seldom it runs.
  for (int under_way = 0; under_way < 100'000;) {
    const CallView call = look(*page, 0).calls[0];
    if (call.began == 0) continue;
    ++under_way;
    ASSERT_EQ(call.bytes, call.step);
    ASSERT_EQ(call.bucket, call.step % 2);
    ASSERT_EQ(call.sequence, static_cast<uint64_t>(call.step) + 1);
    if (!call.operation.empty()) {
      ASSERT_EQ(call.operation, call.step % 2 == 0 ? "even" : "odd");
    }
  }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  munmap(memory, sizeof(LedgerPage));
}

TEST(ViewTest, SaysWhereARankIs) {
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

TEST(ViewTest, SaysWhatACollectiveIs) {
  CallView call;
  call.sequence = 4182;
  call.operation = "all_reduce_sum";
  EXPECT_EQ(describe(call, {}), "all-reduce #4182");
  call.bucket = 1;
  EXPECT_EQ(describe(call, {"fc2", "fc1.weight ... fc1.bias"}),
            "all-reduce #4182, bucket 1 (fc1.weight ... fc1.bias)");
  EXPECT_EQ(describe(call, {"fc2"}), "all-reduce #4182, bucket 1");
}

}  // namespace
}  // namespace trireme
