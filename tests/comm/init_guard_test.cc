// What a rank that waits for others says of them, where markers tell and where they mislead.
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
  // Leaves a zombie, which is dead as well.
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

// The process as a note tells of it.
std::string words_of(pid_t pid) {
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
  fs::path note(const std::string& run, int rank, const std::string& words) {
    fs::remove(path(run, rank));
    fs::create_symlink(words, path(run, rank));
    return path(run, rank);
  }
  void arrived(int rank, const Sleeper& process) {
    note("pmix_" + run_, rank, words_of(process.pid()));
  }

  // Waits for ranks that do not come.
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

TEST_F(InitGuardTest, LeavesANoteAndTakesItAlong) {
  {
    const InitGuard guard(launcher_, 60);
    EXPECT_EQ(fs::read_symlink(path("pmix_" + run_, 0)), words_of(getpid()));
  }
  EXPECT_FALSE(fs::is_symlink(path("pmix_" + run_, 0)));
}

TEST_F(InitGuardDeathTest, NamesWhoHasNotCome) {
  const Sleeper other;
  arrived(2, other);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1),
              "after 0.3 s not all ranks have joined: ranks 1, 3 of 4 have not started; arrived on "
              "host .*: ranks 0, 2 .TRIREME_INIT_TIMEOUT sets how long to wait.\n$");
}

TEST_F(InitGuardDeathTest, NamesWhoIsStopped) {
  const Sleeper stopped;
  stopped.stop();
  arrived(1, stopped);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1),
              fmt::format("ranks 2, 3 of 4 have not started; rank 1 of 4 .pid {}. is stopped; "
                          "arrived on host .*: rank 0 ",
                          stopped.pid()));
}

TEST_F(InitGuardDeathTest, DoesNotWaitForTheDead) {
  const Sleeper dead;
  arrived(3, dead);
  dead.die();
  EXPECT_EXIT(wait_in_vain(10), testing::ExitedWithCode(1),
              fmt::format("trireme: before all ranks had joined: ranks 1, 2 of 4 have not started; "
                          "rank 3 of 4 .pid {}. has died",
                          dead.pid()));
}

TEST_F(InitGuardDeathTest, SaysWhenAllHaveCome) {
  local_size(2);
  launcher_.ranks = 2;
  const Sleeper other;
  arrived(1, other);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1),
              "joined: all have arrived on host .*: ranks 0, 1 ");
}

TEST_F(InitGuardDeathTest, OfSeveralHostsItTellsWhatItSees) {
  local_size(2);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1),
              "1 of the 2 ranks of this host has not started; arrived on host .*: rank 0; of the 2 "
              "ranks on other hosts nothing is known here");
}

TEST_F(InitGuardDeathTest, SlurmTellsWhichRanksAreHere) {
  launcher_.name = "srun";
  setenv("SLURM_JOB_ID", run_.c_str(), 1);
  setenv("SLURM_STEP_ID", "0", 1);
  setenv("SLURM_PROCID", "2", 1);
  setenv("SLURM_GTIDS", "2,3", 1);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1),
              "joined: rank 3 of 4 has not started; arrived on host .*: rank 2; of the 2 ranks on "
              "other hosts nothing is known here");
}

TEST_F(InitGuardDeathTest, LeavesSpeakingToTheFirst) {
  const Sleeper first;
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  arrived(0, first);
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1), "^$");
  // One that is stopped does not speak; one that has spoken is followed at once.
  first.stop();
  EXPECT_EXIT(wait_in_vain(), testing::ExitedWithCode(1), "rank 0 of 4 .pid .* is stopped");
  note("pmix_" + run_, 0, words_of(first.pid()) + ":gave-up");
  EXPECT_EXIT(wait_in_vain(15), testing::ExitedWithCode(1), "^$");
}

// Slurm names a run that is started again as it did before.
TEST_F(InitGuardTest, WhoDiedBeforeTheLaunchIsOfAnotherRun) {
  note("pmix_" + run_, 3, fmt::format("999999999:1:{}", pid_namespace()));
  const StartupMarkers markers("pmix_" + run_);
  EXPECT_TRUE(markers.read().empty());
  markers.add(3);
  ASSERT_EQ(markers.read().size(), 1u);
  EXPECT_EQ(markers.read()[0].process.pid, getpid());
  markers.remove(3);
}

TEST_F(InitGuardTest, NotesOfDeadRunsAreRemoved) {
  Sleeper dead;
  const Sleeper alive;
  const auto dead_alone = note("dead" + run_, 0, words_of(dead.pid()));
  const auto dead_of_two = note("half" + run_, 0, words_of(dead.pid()));
  const auto alive_of_two = note("half" + run_, 1, words_of(alive.pid()));
  const auto of_another_namespace = note("far" + run_, 0, "1:1:1");
  const auto of_the_past =
      note("past" + run_, 0, fmt::format("{}:1:{}", alive.pid(), pid_namespace()));
  dead.end();
  const StartupMarkers markers("pmix_" + run_);
  EXPECT_FALSE(fs::is_symlink(dead_alone));
  EXPECT_TRUE(fs::is_symlink(dead_of_two)) << "a run that lives still needs it";
  EXPECT_TRUE(fs::is_symlink(alive_of_two));
  EXPECT_TRUE(fs::is_symlink(of_another_namespace)) << "it cannot be seen whether it lives";
  EXPECT_FALSE(fs::is_symlink(of_the_past)) << "its number belongs to a later process";
}

TEST_F(InitGuardTest, DamagedNotesStopNobody) {
  const auto damaged = note("damaged" + run_, 0, "12:");
  const auto nameless = note("damaged" + run_, 1, "no note");
  std::ofstream(path("file" + run_, 0)) << "a file";
  fs::create_directory(path("folder" + run_, 0));
  // In the place of this rank's own note, and of another's.
  note("pmix_" + run_, 0, "garbage");
  fs::create_directory(path("pmix_" + run_, 1));
  const InitGuard guard(launcher_, 60);
  EXPECT_FALSE(fs::is_symlink(damaged));
  EXPECT_FALSE(fs::is_symlink(nameless));
  EXPECT_FALSE(fs::exists(path("file" + run_, 0)));
  EXPECT_EQ(fs::read_symlink(path("pmix_" + run_, 0)), words_of(getpid()));
}

TEST_F(InitGuardTest, ItsBoundIsANumberOfSeconds) {
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
