// Messages of a rank that waits for others during startup.
#include "comm/watchdog/init_guard.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "comm/watchdog/startup_markers.h"
#include "core/error.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// A process that does nothing.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) pause();
  }
  ~Sleeper() { end(); }
  pid_t pid() const { return pid_; }
  void stop() const {
    kill(pid_, SIGSTOP);
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
  }
  // Leaves a zombie, which counts as dead.
  void die() const {
    kill(pid_, SIGKILL);
    siginfo_t info = {};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void end() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
};

uint64_t pid_namespace() {
  struct stat status = {};
  stat("/proc/self/ns/pid", &status);
  return status.st_ino;
}

// Returns the content of a marker for the process.
std::string identity_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string started;
  for (int field = 1; field <= 22; ++field) file >> started;
  return fmt::format("{}:{}:{}", pid, started, pid_namespace());
}

class InitGuardTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("PMIX_NAMESPACE", run_.c_str(), 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    local_size(4);
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    host_ = name;
    for (char& c : name) c = c == 0 || std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    prefix_ = fmt::format("/dev/shm/trireme-start.{}.{}.", geteuid(), name);
  }
  void TearDown() override {
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
      if (entry.path().filename().string().find(run_) != std::string::npos)
        fs::remove(entry.path());
    }
  }

  static void local_size(int ranks) {
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(ranks).c_str(), 1);
  }
  fs::path path(const std::string& run, int rank) const {
    return prefix_ + run + "." + std::to_string(rank);
  }
  fs::path write_marker(const std::string& run, int rank, const std::string& words) {
    fs::remove(path(run, rank));
    fs::create_symlink(words, path(run, rank));
    return path(run, rank);
  }
  void add_marker(int rank, const Sleeper& process) {
    write_marker("pmix_" + run_, rank, identity_of(process.pid()));
  }

  // Waits for ranks that never join.
  void wait_in_vain(double seconds = 0.3) const {
    const InitGuard guard(launcher_, seconds);
    std::this_thread::sleep_for(20s);
  }

  const std::string run_ = "test" + std::to_string(getpid());
  Launcher launcher_ = {"mpirun", 4, true, true};
  std::string host_;
  std::string prefix_;
};
using InitGuardDeathTest = InitGuardTest;

TEST_F(InitGuardTest, CreatesAndRemovesItsMarker) {
  {
    const InitGuard guard(launcher_, 60);
    EXPECT_EQ(fs::read_symlink(path("pmix_" + run_, 0)), identity_of(getpid()));
  }
  EXPECT_FALSE(fs::is_symlink(path("pmix_" + run_, 0)));
}

TEST_F(InitGuardDeathTest, NamesRanksThatHaveNotStarted) {
  const Sleeper other;
  add_marker(2, other);
  EXPECT_EXIT(
      wait_in_vain(), testing::ExitedWithCode(1),
      "not all ranks joined within 0.3 s .TRIREME_INIT_TIMEOUT sets this limit.: ranks 1, 3 "
      "of 4 have not started; waiting on host .*: ranks 0, 2\n$");
}

TEST_F(InitGuardDeathTest, NamesSuspendedRanks) {
  const Sleeper stopped;
  stopped.stop();
  add_marker(1, stopped);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1),
              fmt::format("ranks 2, 3 of 4 have not started; rank 1 of 4 .pid {}. is stopped; "
                          "waiting on host .*: rank 0\n",
                          stopped.pid()));
}

TEST_F(InitGuardDeathTest, FailsAtOnceIfARankHasDied) {
  const Sleeper dead;
  add_marker(3, dead);
  dead.die();
  EXPECT_EXIT(wait_in_vain(10), testing::ExitedWithCode(1),
              fmt::format("trireme: startup failed before all ranks had joined: ranks 1, 2 of 4 "
                          "have not started; rank 3 of 4 .pid {}. has died",
                          dead.pid()));
}

TEST_F(InitGuardDeathTest, ReportsThatAllRanksHaveStarted) {
  local_size(2);
  launcher_.ranks = 2;
  const Sleeper other;
  add_marker(1, other);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1),
              "limit.: all ranks have started on host .*: ranks 0, 1\n");
}

TEST_F(InitGuardDeathTest, ReportsRanksOnOtherHostsAsUnknown) {
  local_size(2);
  EXPECT_EXIT(
      wait_in_vain(), testing::ExitedWithCode(1),
      "1 of the 2 ranks of this host has not started; waiting on host .*: rank 0; the state "
      "of the 2 ranks on other hosts is not known here; .*--mca btl_tcp_if_include NETWORK");
}

// As `trireme doctor` does.
TEST_F(InitGuardDeathTest, CallsAFunctionInsteadOfPrintingTheMessage) {
  const auto wait = [&] {
    const InitGuard guard(launcher_, 0.3, [](const std::string& message) {
      std::fprintf(stderr, "diagnosis of: %s\n", message.c_str());
    });
    std::this_thread::sleep_for(20s);
  };
  EXPECT_EXIT(wait(), testing::ExitedWithCode(1),
              "^diagnosis of: not all ranks joined within 0.3 s");
}

TEST_F(InitGuardDeathTest, UsesTheRanksOfThisHostFromSlurm) {
  launcher_.name = "srun";
  setenv("SLURM_JOB_ID", run_.c_str(), 1);
  setenv("SLURM_STEP_ID", "0", 1);
  setenv("SLURM_PROCID", "2", 1);
  setenv("SLURM_GTIDS", "2,3", 1);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1),
              "limit.: rank 3 of 4 has not started; waiting on host .*: rank 2; the state of the 2 "
              "ranks on other hosts is not known here");
}

TEST_F(InitGuardDeathTest, OnlyTheLowestRunningRankReports) {
  const Sleeper first;
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  add_marker(0, first);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1), "^$");
  // A suspended rank does not report; once a rank has reported, the others exit at once.
  first.stop();
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1), "rank 0 of 4 .pid .* is stopped");
  write_marker("pmix_" + run_, 0, identity_of(first.pid()) + ":gave-up");
  EXPECT_EXIT(wait_in_vain(15), testing::ExitedWithCode(1), "^$");
}

// Slurm uses the same name for a run that is restarted.
TEST_F(InitGuardTest, IgnoresProcessesThatDiedBeforeTheLaunch) {
  write_marker("pmix_" + run_, 3, fmt::format("999999999:1:{}", pid_namespace()));
  const StartupMarkers markers("pmix_" + run_, 4);
  EXPECT_TRUE(markers.read().empty());
  markers.add(3);
  ASSERT_EQ(markers.read().size(), 1u);
  EXPECT_EQ(markers.read()[0].process.pid, getpid());
  markers.remove(3);
}

TEST_F(InitGuardTest, RemovesMarkersOfDeadRuns) {
  Sleeper dead;
  const Sleeper alive;
  const auto dead_alone = write_marker("dead" + run_, 0, identity_of(dead.pid()));
  const auto dead_of_two = write_marker("half" + run_, 0, identity_of(dead.pid()));
  const auto alive_of_two = write_marker("half" + run_, 1, identity_of(alive.pid()));
  const auto of_another_namespace = write_marker("far" + run_, 0, "1:1:1");
  const auto of_the_past =
      write_marker("past" + run_, 0, fmt::format("{}:1:{}", alive.pid(), pid_namespace()));
  dead.end();
  const StartupMarkers markers("pmix_" + run_, 4);
  EXPECT_FALSE(fs::is_symlink(dead_alone));
  EXPECT_TRUE(fs::is_symlink(dead_of_two)) << "its run is still active and needs it";
  EXPECT_TRUE(fs::is_symlink(alive_of_two));
  EXPECT_TRUE(fs::is_symlink(of_another_namespace)) << "the state of its process is unknown";
  EXPECT_FALSE(fs::is_symlink(of_the_past)) << "its pid belongs to a later process";
}

// Anyone may create files in /dev/shm.
TEST_F(InitGuardTest, IgnoresMarkersOfOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "takes root, to create files of another user";
  const auto forged = write_marker("pmix_" + run_, 1, identity_of(getpid()));
  const StartupMarkers markers("pmix_" + run_, 4);
  ASSERT_EQ(lchown(forged.c_str(), 65534, 65534), 0);
  EXPECT_TRUE(markers.read().empty());
  write_marker("pmix_" + run_, 1, identity_of(getpid()));
  EXPECT_EQ(markers.read().size(), 1u);
  write_marker("pmix_" + run_, 4, identity_of(getpid()));
  write_marker("pmix_" + run_, -1, identity_of(getpid()));
  EXPECT_EQ(markers.read().size(), 1u) << "there are only ranks 0 to 3";
}

TEST_F(InitGuardTest, ToleratesDamagedMarkers) {
  const auto damaged = write_marker("damaged" + run_, 0, "12:");
  const auto nameless = write_marker("damaged" + run_, 1, "no marker");
  std::ofstream(path("file" + run_, 0)) << "a file";
  fs::create_directory(path("folder" + run_, 0));
  // In place of this rank's own marker, and of another's.
  write_marker("pmix_" + run_, 0, "garbage");
  fs::create_directory(path("pmix_" + run_, 1));
  const InitGuard guard(launcher_, 60);
  EXPECT_FALSE(fs::is_symlink(damaged));
  EXPECT_FALSE(fs::is_symlink(nameless));
  EXPECT_FALSE(fs::exists(path("file" + run_, 0)));
  EXPECT_EQ(fs::read_symlink(path("pmix_" + run_, 0)), identity_of(getpid()));
}

TEST_F(InitGuardTest, ReadsTheTimeoutFromTheEnvironment) {
  unsetenv("TRIREME_INIT_TIMEOUT");
  EXPECT_EQ(init_timeout(), 300);
  setenv("TRIREME_INIT_TIMEOUT", "2.5", 1);
  EXPECT_EQ(init_timeout(), 2.5);
  setenv("TRIREME_INIT_TIMEOUT", "0", 1);
  EXPECT_EQ(init_timeout(), 0);
  for (const char* text : {"-1", "5 minutes", "nan", "inf", "x"}) {
    setenv("TRIREME_INIT_TIMEOUT", text, 1);
    EXPECT_THROW(init_timeout(), ConfigError) << text;
  }
}

}  // namespace
}  // namespace trireme::comm
