// Runs ranks under mpirun, on one host and on several simulated hosts, and breaks one of them. All
// must end in time, and those that report must print the same diagnosis. A hang shows as the test's
// timeout.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/build_tree.h"

namespace {

constexpr int kRanks = 4;

struct Outcome {
  int code;
  double seconds;
  std::string output;
  std::vector<std::string> diagnoses;  // by the ranks that reported
};

struct Options {
  std::string log = "";
  std::string launcher = "";  // options of mpirun
  int ranks = kRanks;
  bool grouped = false;
};

Outcome run(int hosts, const std::string& fault, int rank, const Options& options = {}) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string program = trireme::testing::build_tree() / "tests" / "comm_watchdog_program";
  const std::string command = "WATCHDOG_TEST_LOG=" + options.log + " mpirun --quiet " +
                              options.launcher + " -np " + std::to_string(options.ranks) +
                              " --oversubscribe --bind-to none " + program + " " +
                              std::to_string(hosts) + " " + fault + " " + std::to_string(rank) +
                              (options.grouped ? " GROUPS" : "") + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome = {};
  std::array<char, 4096> chunk;
  while (const size_t read = std::fread(chunk.data(), 1, chunk.size(), pipe)) {
    outcome.output.append(chunk.data(), read);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("trireme: ") && !line.ends_with("; backtrace:")) {
      outcome.diagnoses.push_back(line.substr(9));
    }
  }
  return outcome;
}

// Expects at least `reports` ranks to have printed the same diagnosis, which begins with `begin`
// and contains the fragments.
void expect_diagnosis(const Outcome& outcome, size_t reports, const std::string& begin,
                      const std::vector<std::string>& fragments = {}) {
  EXPECT_NE(outcome.code, 0);
  EXPECT_LT(outcome.seconds, 9) << outcome.output;
  EXPECT_GE(outcome.diagnoses.size(), reports) << outcome.output;
  const std::set<std::string> different(outcome.diagnoses.begin(), outcome.diagnoses.end());
  ASSERT_EQ(different.size(), 1u) << outcome.output;
  EXPECT_TRUE(different.begin()->starts_with(begin)) << outcome.output;
  for (const std::string& fragment : fragments) {
    EXPECT_NE(different.begin()->find(fragment), std::string::npos) << fragment << " in\n"
                                                                    << outcome.output;
  }
}

class WatchdogTest : public testing::TestWithParam<int> {};  // number of hosts

INSTANTIATE_TEST_SUITE_P(Hosts, WatchdogTest, testing::Values(1, 2, 4),
                         [](const auto& test) { return "on" + std::to_string(test.param); });

TEST_P(WatchdogTest, HealthyRunEndsWithoutDiagnosis) {
  const Outcome outcome = run(GetParam(), "none", 0);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "done\n");
}

TEST_P(WatchdogTest, ReportsAKilledRank) {
  const Outcome outcome = run(GetParam(), "kill", 3);
  // If the rank is alone on its host, the host is reported as lost. mpirun may end ranks before
  // they report.
  expect_diagnosis(outcome, 1, GetParam() == 4 ? "host " : "rank 3 (host ");
}

TEST_P(WatchdogTest, ReportsASuspendedRank) {
  const Outcome outcome = run(GetParam(), "stop", 1);
  if (GetParam() == 4) return expect_diagnosis(outcome, 2, "host ", {"(rank 1) is unreachable"});
  expect_diagnosis(
      outcome, 2, "rank 1 (host ",
      {"was suspended 1.", "in forward of step 31", "ranks 0, 2 and 3 are waiting for it in",
       "all-reduce #", "bucket 0 (fc2 ... fc1)"});
}

TEST_P(WatchdogTest, ReportsAStuckRank) {
  expect_diagnosis(
      run(GetParam(), "stuck", 2), 2, "rank 2 (host ",
      {"has been stuck in forward of step 31", "ranks 0, 1 and 3 are waiting for it in"});
}

TEST_P(WatchdogTest, ReportsAFailedRank) {
  const Outcome outcome = run(GetParam(), "fail", 2);
  EXPECT_EQ(outcome.code, 3) << outcome.output;
  expect_diagnosis(outcome, 2, "rank 2 (host ",
                   {"failed in forward of step 31: shard-1.tar: record 5 is cut short"});
}

TEST_P(WatchdogTest, ReportsACrashedRank) {
  expect_diagnosis(run(GetParam(), "segv", 0), 1, "rank 0 (host ",
                   {"failed in forward of step 31: crashed with SIGSEGV"});
  expect_diagnosis(run(GetParam(), "limited", 0), 1, "rank 0 (host ",
                   {"crashed with SIGSEGV (the limit of 256.0 TiB by ulimit -v may be the cause)"});
}

TEST_P(WatchdogTest, ReportsAMappedFileThatWasTruncated) {
  const Outcome outcome = run(GetParam(), "truncated", 0);
  expect_diagnosis(outcome, 1, "rank 0 (host ",
                   {"failed in forward of step 31: crashed with SIGBUS in /", "trireme-mapped-",
                    "which was truncated during use"});
}

TEST_P(WatchdogTest, ReportsARankThatLeftWhileOthersWait) {
  expect_diagnosis(run(GetParam(), "leave", 2), 1, GetParam() == 4 ? "host " : "rank 2 (host ");
}

TEST_P(WatchdogTest, ReportsASkippedCollective) {
  const Outcome outcome = run(GetParam(), "skip", 3);
  expect_diagnosis(outcome, 2, "mismatched collectives: rank 3 (",
                   {"all-reduce #", "(fc2 ... fc1)"});
  if (GetParam() == 4) return;
  // Ranks of the same host notice in the same call.
  EXPECT_NE(outcome.diagnoses[0].find("in step 32"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.diagnoses[0].find("in step 31"), std::string::npos) << outcome.output;
}

// Process groups that share ranks, on one host, whose ranks compare their calls, and with one rank
// per host.
class WatchdogGroupsTest : public WatchdogTest {  // number of ranks
 protected:
  static Outcome run_groups(int hosts, const std::string& fault) {
    return run(hosts, fault, 1, {.ranks = GetParam(), .grouped = true});
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, WatchdogGroupsTest, testing::Values(2, 3, 4),
                         [](const auto& test) { return "of" + std::to_string(test.param); });

TEST_P(WatchdogGroupsTest, HealthyRunEndsWithoutDiagnosis) {
  for (const int hosts : {1, GetParam()}) {
    const Outcome outcome = run_groups(hosts, "none");
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_EQ(outcome.output, "done\n");
  }
}

TEST_P(WatchdogGroupsTest, ReportsASkippedCollectiveOfAGroup) {
  std::vector<std::string> fragments = {"all-reduce #", "(fc2 ... fc1)"};
  if (GetParam() > 2) fragments.push_back(" of ranks 0 and 1, bucket 0");
  expect_diagnosis(run_groups(1, "skip"), 1, "mismatched collectives: rank 1 (", fragments);
}

TEST_P(WatchdogGroupsTest, ReportsADifferentCollectiveOfAGroup) {
  const std::string group = GetParam() > 2 ? " of ranks 0 and 1" : "";
  for (const int hosts : {1, GetParam()}) {
    expect_diagnosis(run_groups(hosts, "other"), 1, "mismatched collectives: rank 1 (",
                     {"is in broadcast #31" + group + ", 4 bytes", "but rank 0 (",
                      "is in all-reduce #31" + group + ", bucket 0 (fc2 ... fc1)"});
  }
}

TEST_P(WatchdogGroupsTest, ReportsARankThatTwoGroupsWaitFor) {
  std::vector<std::string> fragments = {"has been stuck in forward of step 31",
                                        "; rank 0 is waiting for it in all-reduce #"};
  if (GetParam() > 2) fragments.push_back("; rank 2 is waiting for it in all-reduce #");
  expect_diagnosis(run_groups(1, "stuck"), 1, "rank 1 (host ", fragments);
}

TEST(WatchdogHostsTest, ReportsALostHost) {
  // Without this option, mpirun might end the ranks before they report. With it, it may return 0.
  const Outcome outcome = run(2, "host", 0, {.launcher = "--enable-recovery"});
  ASSERT_FALSE(outcome.diagnoses.empty()) << outcome.output;
  EXPECT_NE(outcome.diagnoses[0].find("(ranks 2 and 3) is lost"), std::string::npos)
      << outcome.output;
}

TEST(WatchdogHostsTest, ReportsAFrozenHostAsUnreachable) {
  // mpirun continues the frozen ranks before it ends them, so that they may report, too.
  expect_diagnosis(run(2, "freeze", 0), 2, "host ", {"(ranks 2 and 3) is unreachable"});
}

TEST(WatchdogLogTest, AppendsTheDiagnosisToTheLog) {
  const auto log = std::filesystem::temp_directory_path() /
                   ("watchdog-test-" + std::to_string(getpid()) + ".log");
  std::ofstream(log) << "before\n";
  const Outcome outcome = run(1, "fail", 2, {.log = log.string()});
  std::ifstream file(log);
  std::string first;
  std::string second;
  std::getline(file, first);
  std::getline(file, second);
  std::filesystem::remove(log);
  EXPECT_EQ(first, "before");
  ASSERT_FALSE(outcome.diagnoses.empty());
  EXPECT_EQ(second, outcome.diagnoses[0]);
}

TEST(WatchdogLogTest, AppendsACrashToTheLog) {
  const auto log = std::filesystem::temp_directory_path() /
                   ("watchdog-test-" + std::to_string(getpid()) + ".log");
  run(1, "truncated", 0, {.log = log.string()});
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  std::filesystem::remove(log);
  EXPECT_THAT(text.str(), testing::ContainsRegex("crashed with SIGBUS in /.* backtrace:\n"));
}

}  // namespace
