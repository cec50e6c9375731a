#include "comm/mpi/shared_barrier.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"

namespace trireme::comm::mpi {
namespace {

constexpr int kRanks = 3;

struct Shared {
  SharedBarrierState barrier;
  std::atomic<int> started{0};
  std::atomic<pid_t> pids[kRanks]{};
  std::atomic<uint64_t> counts[kRanks]{};
};

// Runs ranks in processes that share memory.
class SharedBarrierTest : public testing::Test {
 protected:
  SharedBarrierTest()
      : shared_(new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared) {}
  ~SharedBarrierTest() override { munmap(shared_, sizeof(Shared)); }

  // Returns the exit code of each process, or 128 plus the signal that ended it.
  std::vector<int> run(const std::function<int(int, SharedBarrier&)>& body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < kRanks; ++rank) {
      const pid_t child = fork();
      if (child == 0) _exit(run_rank(rank, body));
      children.push_back(child);
    }
    std::vector<int> results;
    for (pid_t child : children) {
      int status = 0;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      results.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    return results;
  }

  Shared* shared_;

 private:
  int run_rank(int rank, const std::function<int(int, SharedBarrier&)>& body) {
    shared_->pids[rank] = getpid();
    ++shared_->started;
    while (shared_->started < kRanks) usleep(100);
    std::vector<Peer> peers;
    for (int i = 0; i < kRanks; ++i) {
      peers.push_back(this_peer(i));
      peers.back().pid = shared_->pids[i];
    }
    const PeerWatch watch(peers);
    SharedBarrier barrier(shared_->barrier, kRanks, watch);
    return body(rank, barrier);
  }
};

TEST_F(SharedBarrierTest, NoRankPassesBeforeAllHaveArrived) {
  const auto results = run([this](int rank, SharedBarrier& barrier) {
    std::mt19937 random(static_cast<uint32_t>(rank));
    for (uint64_t round = 1; round <= 2000; ++round) {
      if (random() % 16 == 0) usleep(random() % 300);
      shared_->counts[rank].store(round, std::memory_order_relaxed);
      barrier.wait("test");
      for (const auto& count : shared_->counts) {
        const uint64_t seen = count.load(std::memory_order_relaxed);
        if (seen != round && seen != round + 1) return 1;
      }
    }
    return 0;
  });
  EXPECT_EQ(results, std::vector<int>(kRanks, 0));
}

int expect_failure(SharedBarrier& barrier, const std::string& reason) {
  try {
    barrier.wait("all_reduce_sum");
    return 1;
  } catch (const CommError& error) {
    const std::string message = error.what();
    return message.find("all_reduce_sum") != std::string::npos &&
                   message.find(reason) != std::string::npos
               ? 0
               : 2;
  }
}

TEST_F(SharedBarrierTest, NamesAPeerThatIsKilled) {
  const auto results = run([](int rank, SharedBarrier& barrier) {
    barrier.wait("start");
    if (rank == 1) kill(getpid(), SIGKILL);
    const int result = expect_failure(barrier, "rank 1");
    usleep(500'000);  // so that the other rank does not find this one ended
    return result;
  });
  EXPECT_EQ(results, (std::vector<int>{0, 128 + SIGKILL, 0}));
}

TEST_F(SharedBarrierTest, FailureEndsPresentAndLaterWaits) {
  const auto results = run([](int rank, SharedBarrier& barrier) {
    barrier.wait("start");
    if (rank == 2) {
      usleep(20'000);
      barrier.fail();
      usleep(300'000);  // stays alive
    }
    return expect_failure(barrier, "has failed");
  });
  EXPECT_EQ(results, std::vector<int>(kRanks, 0));
}

// A waiting rank must leave its core to others, such as the rank that it waits for.
TEST_F(SharedBarrierTest, SleepsWhileWaiting) {
  constexpr int kRounds = 20;
  const auto results = run([](int rank, SharedBarrier& barrier) {
    barrier.wait("start");
    timespec before{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    for (int round = 0; round < kRounds; ++round) {
      if (rank == 0) usleep(20'000);
      barrier.wait("test");
    }
    timespec after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                           1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
    return seconds < 0.003 * kRounds ? 0 : 1;
  });
  EXPECT_EQ(results, std::vector<int>(kRanks, 0));
}

// After the last barrier of a run, a rank may end before the others have woken up.
TEST_F(SharedBarrierTest, AcceptsThatAPeerEndsAfterTheBarrier) {
  for (int i = 0; i < 20; ++i) {
    const auto results = run([](int rank, SharedBarrier& barrier) {
      if (rank == 0) usleep(20'000);
      barrier.wait("last");
      return 0;
    });
    EXPECT_EQ(results, std::vector<int>(kRanks, 0));
    new (shared_) Shared;
  }
}

}  // namespace
}  // namespace trireme::comm::mpi
