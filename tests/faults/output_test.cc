// Training continues if its output cannot be written.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/build_tree.h"
#include "tests/faults/faults.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class Output : public FaultTest {
 protected:
  // Trains 200 steps in a shell that redirects stdout, and returns the exit code of the shell.
  int shell(const std::string& redirection) const {
    std::string command = (build_tree() / "bin" / "trireme").string();
    for (const std::string& word : train({"--set", "train.max_steps=200"})) command += " " + word;
    const std::string all = "set -o pipefail; " + command + " 2>/dev/null " + redirection;
    const int status = std::system(("bash -c '" + all + "'").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void expect_complete() const {
    EXPECT_EQ(losses_of(run_dir()).size(), 200u);
    EXPECT_TRUE(fs::exists(run_dir() / "checkpoints" / "step-00000200"));
  }
};

TEST_F(Output, StdoutIsClosed) {
  EXPECT_EQ(shell(">&-"), 0);
  expect_complete();
}

TEST_F(Output, StdoutIsAFullDisk) {
  EXPECT_EQ(shell("> /dev/full"), 0);
  expect_complete();
}

TEST_F(Output, ReaderOfStdoutHasExited) {
  EXPECT_EQ(shell("| head -n 1 > /dev/null"), 0);
  expect_complete();
}

TEST_F(Output, TheLogIsOnAFullDisk) {
  fs::create_directories(run_dir() / "log");
  fs::create_symlink("/dev/full", run_dir() / "log" / "rank-0.log");
  const Outcome outcome = run(train({"--set", "train.max_steps=200"}), 2);
  EXPECT_EQ(outcome.code, 0) << outcome.error << outcome.out;
  expect_complete();
}

TEST_F(Output, FoldersVanish) {
  Program program(train({"--set", "train.max_steps=3000"}), 2);
  ASSERT_TRUE(wait_for(run_dir() / "checkpoints" / "latest", 20));
  fs::rename(run_dir() / "log", scratch_ / "log");
  fs::remove(run_dir() / "metrics.jsonl");
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.error << outcome.out;
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints" / "step-00003000"));
}

TEST_F(Output, TheRunFolderVanishes) {
  Program program(train({"--set", "train.max_steps=3000"}), 2);
  ASSERT_TRUE(wait_for(run_dir() / "checkpoints" / "latest", 20));
  fs::rename(run_dir(), scratch_ / "removed");  // removes it atomically
  fs::remove_all(scratch_ / "removed");
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 1) << outcome.error << outcome.out;
  const std::string lost = "run folder " + run_dir().string() + " has been removed, emptied,";
  EXPECT_NE(outcome.out.find("warning: " + lost), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.error.find(lost), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("metrics.jsonl"), std::string::npos) << outcome.error;
  EXPECT_EQ(outcome.out.find("done: "), std::string::npos) << outcome.out;
  // The result of the training is saved nevertheless.
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints" / "step-00003000" / "manifest.json"));
  const Outcome again = run(train({"--set", "train.max_steps=3000"}), 2);
  EXPECT_EQ(again.code, 0) << again.error;
}

}  // namespace
}  // namespace trireme::testing
