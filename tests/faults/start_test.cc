// Faults during startup, and files that killed runs leave behind.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>
#include <thread>

#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr double kTimeout = 3;
constexpr double kBound = kTimeout + 5;

// Returns the names of Trireme's files in shared memory.
std::set<std::string> shared_files() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("trireme") != std::string::npos) names.insert(name);
  }
  return names;
}

class Start : public FaultTest {
 protected:
  Outcome start(const std::string& faults, int ranks) {
    return run(train(), ranks,
               {"TRIREME_INJECT=" + faults, "TRIREME_INIT_TIMEOUT=" + std::to_string(kTimeout)});
  }
  // Expects all ranks to have ended in time, and exactly one to have printed a message, which
  // contains `message`.
  void expect_startup_failure(const Outcome& outcome, const std::string& message) {
    EXPECT_NE(outcome.code, 0) << outcome.out;
    EXPECT_LT(outcome.seconds, kBound);
    expect_none_left();
    const auto lines = lines_with(outcome.error, "trireme: ");
    ASSERT_EQ(lines.size(), 1u) << outcome.error;
    EXPECT_NE(lines[0].find(message), std::string::npos) << lines[0];
  }
  // Waits for the processes of `count` ranks and returns them.
  static std::vector<pid_t> ranks_of(const Program& program, size_t count) {
    std::vector<pid_t> ranks;
    for (int i = 0; i < 500 && ranks.size() < count; ++i) {
      std::this_thread::sleep_for(10ms);
      ranks = program.children();
    }
    return ranks;
  }
  // Kills all processes as a power failure would. Removes Open MPI's files, which nothing else
  // does.
  static void kill_all(Program& program, const std::vector<pid_t>& ranks) {
    const std::string environment =
        read_file("/proc/" + std::to_string(ranks.front()) + "/environ");
    kill(program.pid(), SIGSTOP);  // otherwise it would clean up after its ranks
    for (const pid_t rank : ranks) kill(rank, SIGKILL);
    kill(program.pid(), SIGKILL);
    program.wait();
    const std::string name = "PMIX_NAMESPACE=";
    const size_t at = environment.find(name);
    ASSERT_NE(at, std::string::npos);
    std::ostringstream job;
    job << '.' << std::hex << std::stoul(environment.substr(at + name.size())) << '.';
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
      if (entry.path().filename().string().find(job.str()) != std::string::npos) {
        fs::remove(entry.path());
      }
    }
  }
  // Returns the number of recorded steps. While the run is active, the last record may be
  // incomplete.
  size_t steps() const {
    return lines_with(read_file(run_dir() / "metrics.jsonl"), "\"event\":\"step\"").size();
  }
  // Expects a new run to start, make progress, and end on SIGUSR1.
  void expect_clean_start() {
    const size_t before = steps();
    Program program(train(), 2);
    for (int i = 0; i < 500 && steps() < before + 20; ++i) {
      std::this_thread::sleep_for(20ms);
      ASSERT_TRUE(program.running()) << program.wait().error;
    }
    program.signal(SIGUSR1);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, 75) << outcome.error;
    EXPECT_GE(steps(), before + 20);
    expect_none_left();
  }
};

TEST_F(Start, ReportsARankThatHasNotStarted) {
  expect_startup_failure(start("before_mpi sleep rank=2", 4),
                         "rank 2 of 4 has not started; waiting on ");
}

TEST_F(Start, ReportsThatAllRanksHaveStartedIfOneIsStuck) {
  expect_startup_failure(start("mpi sleep rank=1", 2),
                         "not all ranks joined within 3 s (TRIREME_INIT_TIMEOUT sets this limit): "
                         "all ranks have started on ");
}

// By default, the ranks need not wait longer for each other than for the first step.
TEST_F(Start, ReportsASuspendedRankAfterTheTimeoutOfTheFirstStep) {
  const Outcome outcome = run(train({"--set", "watchdog.first_timeout_seconds=3"}), 2,
                              {"TRIREME_INJECT=mpi stop rank=0"});
  expect_startup_failure(outcome, "rank 0 of 2 (pid ");
  expect_startup_failure(outcome, ") is stopped");
}

// The rank has no startup marker yet, so only the launcher notices, which ends the job.
TEST_F(Start, EndsIfARankDiesBeforeItsMarkerExists) {
  const Outcome outcome = start("before_mpi kill rank=1", 2);
  EXPECT_EQ(outcome.code, 128 + SIGKILL) << outcome.error;
  EXPECT_LT(outcome.seconds, kBound);
  expect_none_left();
}

// The launcher may end the ranks before they report.
void expect_death_of_rank_1(const Outcome& outcome) {
  EXPECT_NE(outcome.code, 0) << outcome.error;
  EXPECT_LT(outcome.seconds, kBound);
  for (const std::string& line : lines_with(outcome.error, "trireme: ")) {
    EXPECT_NE(line.find("rank 1 of 3 (pid "), std::string::npos) << line;
    EXPECT_NE(line.find(") has died"), std::string::npos) << line;
  }
}

TEST_F(Start, ReportsARankThatDiesBeforeMpiIsInitialized) {
  expect_death_of_rank_1(start("mpi kill rank=1", 3));
  expect_none_left();
}

TEST_F(Start, ReportsARankThatDiesBeforeTheWatchdogRuns) {
  expect_death_of_rank_1(start("after_mpi kill rank=1", 3));
  expect_none_left();
}

TEST_F(Start, RestartsAfterAllProcessesWereKilled) {
  Program killed(train(), 2);
  const std::vector<pid_t> ranks = ranks_of(killed, 2);
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_TRUE(wait_for(run_dir() / "checkpoints" / "latest", 20));
  kill_all(killed, ranks);
  expect_none_left();
  // Files of a process that died while writing.
  scratch_.write("run/checkpoints/step-00000021.tmp/model.safetensors", "half a file");
  scratch_.write("run/summary.json.trireme-1.tmp", "half a file");
  expect_clean_start();
  std::vector<fs::path> temporary;
  for (const auto& entry : fs::recursive_directory_iterator(run_dir())) {
    if (entry.path().filename().string().find("tmp") != std::string::npos) {
      temporary.push_back(entry.path());
    }
  }
  EXPECT_TRUE(temporary.empty()) << temporary[0];
}

TEST_F(Start, RemovesMarkersOfAKilledStart) {
  Program killed(train(), 2, {"TRIREME_INJECT=mpi sleep", "TRIREME_INIT_TIMEOUT=60"});
  const std::vector<pid_t> ranks = ranks_of(killed, 2);
  ASSERT_EQ(ranks.size(), 2u);
  std::vector<std::string> left;
  for (int i = 0; i < 500 && left.size() < 2; ++i) {
    std::this_thread::sleep_for(10ms);
    left.clear();
    for (const std::string& name : shared_files()) {
      std::error_code gone;
      const std::string words = fs::read_symlink("/dev/shm/" + name, gone);
      if (std::ranges::any_of(
              ranks, [&](pid_t rank) { return words.starts_with(std::to_string(rank) + ":"); })) {
        left.push_back(name);
      }
    }
  }
  EXPECT_EQ(left.size(), 2u);
  kill_all(killed, ranks);
  expect_clean_start();
  for (const std::string& name : left) {
    EXPECT_FALSE(fs::is_symlink("/dev/shm/" + name)) << name;
  }
}

}  // namespace
}  // namespace trireme::testing
