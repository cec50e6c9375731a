// The completions that bash, zsh and fish offer with the completion scripts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/build_tree.h"
#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using Words = std::vector<std::string>;

std::string in_quotes(const std::string& text) { return "'" + text + "'"; }

// The parameter is the shell.
class Completion : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (std::system(("command -v " + shell() + " >" + in_quotes(home_ / "found")).c_str()) != 0) {
      GTEST_SKIP() << shell() << " is not installed; launch/setup --tests installs it";
    }
    script_ = home_.write("script", run({"completion", shell()}).out);
  }

  const std::string& shell() const { return GetParam(); }

  // Runs the command in an empty environment with `trireme` in PATH. Expects success and nothing on
  // stderr. Returns its output.
  std::string output_of(const std::string& command, const std::filesystem::path& folder = ".") {
    const std::string path = (build_tree() / "bin").string() + ":/usr/local/bin:/usr/bin:/bin";
    const std::string all = "cd " + in_quotes(folder) +
                            " && env -i LC_ALL=C.UTF-8 TERM=xterm PATH=" + in_quotes(path) +
                            " HOME=" + in_quotes(home_.path()) + " " + command + " >" +
                            in_quotes(home_ / "out") + " 2>" + in_quotes(home_ / "error");
    EXPECT_EQ(std::system(all.c_str()), 0) << all;
    EXPECT_EQ(read_file(home_ / "error"), "") << all;
    return read_file(home_ / "out");
  }

  // Returns the completions that the shell offers for the line in the folder, sorted.
  Words offers(const std::string& line, const std::filesystem::path& folder = ".") {
    const std::string start = shell() == "bash"  ? "bash --noprofile --norc"
                              : shell() == "zsh" ? "zsh -f"
                                                 : "fish --no-config";
    std::istringstream lines(
        output_of(start + " " TRIREME_SOURCE "/tests/launch/completion/offers." + shell() + " " +
                      in_quotes(script_) + " " + in_quotes(line),
                  folder));
    Words found;
    for (std::string word; std::getline(lines, word);) {
      if (!word.empty()) found.push_back(word);
    }
    std::ranges::sort(found);
    return found;
  }

  // A single, incomplete completion, after which the shell adds no space. (fish decides that
  // itself.)
  Words open(const std::string& word) const {
    return shell() == "fish" ? Words{word} : Words{"(no space)", word};
  }
  // Bash ends words at "=", so its completions begin after it.
  Words after_equals(const std::string& before, Words words) const {
    if (shell() != "bash") {
      for (std::string& word : words) word.insert(0, before);
    }
    return words;
  }

  const Scratch home_;
  std::string script_;
};

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST_P(Completion, ScriptIsValid) { EXPECT_EQ(output_of(shell() + " -n " + script_), ""); }

TEST_P(Completion, OffersCommandsAndSubcommands) {
  EXPECT_EQ(offers("trireme tr"), Words{"train"});
  EXPECT_EQ(offers("trireme data "), (Words{"pack", "show", "stats", "tokenizer"}));
  EXPECT_TRUE(has(offers("trireme "), "zoo"));
}

TEST_P(Completion, OffersOptionsAndTheirValues) {
  EXPECT_EQ(offers("trireme train x.txtpb --run"), Words{"--run-dir"});
  EXPECT_EQ(offers("trireme train x.txtpb --device "), (Words{"auto", "cpu", "cuda"}));
  EXPECT_EQ(offers("trireme train x.txtpb --device=cu"), after_equals("--device=", {"cuda"}));
  EXPECT_FALSE(has(offers("trireme help --"), "--man"));
}

TEST_P(Completion, OffersFieldsOfTheConfiguration) {
  EXPECT_EQ(offers("trireme train x.txtpb --set optimizer.sgd.m"), open("optimizer.sgd.momentum="));
  EXPECT_EQ(offers("trireme train x.txtpb --set opti"), open("optimizer."));
  EXPECT_EQ(offers("trireme train x.txtpb --set train.precision=B"),
            after_equals("train.precision=", {"BF16"}));
  EXPECT_EQ(offers("trireme train x.txtpb --set model.zoo.name=lene"),
            after_equals("model.zoo.name=", {"lenet"}));
}

TEST_P(Completion, OffersFilesNetworksAndRuns) {
  const Scratch scratch;
  scratch.write("one.txtpb", "");
  scratch.write("other.txt", "");
  scratch.write("runs/first/config.txtpb", "");
  scratch.write("runs/none/x", "");
  const auto in = scratch.path();
  EXPECT_EQ(offers("trireme train o", in), Words{"one.txtpb"});
  EXPECT_TRUE(has(offers("trireme train ", in), "runs/"));
  EXPECT_EQ(offers("trireme eval runs/", in), (Words{"runs/first", "runs/none/"}));
  EXPECT_EQ(offers("trireme bench lene", in), Words{"lenet"});
  EXPECT_EQ(offers("trireme config diff one.txtpb one.txtpb ", in), Words{});
}

TEST_P(Completion, OffersInstalledConfigurations) {
  EXPECT_EQ(offers("trireme train mni", home_.path()), Words{"mnist.txtpb"});
}

// zsh and fish quote inserted words, not the offered ones; zsh offers the part after the tilde.
TEST_P(Completion, HandlesQuotedWordsAndTildes) {
  home_.write("my runs/first/config.txtpb", "");
  const std::string run = shell() == "bash" ? "my\\ runs/first" : "my runs/first";
  EXPECT_EQ(offers("trireme eval \"my runs/fi", home_.path()), Words{"my runs/first"});
  EXPECT_EQ(offers("trireme eval my\\ runs/fi", home_.path()), Words{run});
  EXPECT_EQ(offers("trireme eval ~/my\\ runs/fi"), Words{shell() == "zsh" ? run : "~/" + run});
}

TEST_P(Completion, CompletesAfterLaunchers) {
  EXPECT_EQ(offers("mpirun -np 2 trireme tr"), Words{"train"});
  EXPECT_EQ(offers("mpiexec -n 2 --bind-to none trireme train x.txtpb --run"), Words{"--run-dir"});
  EXPECT_EQ(
      offers("srun --mpi=pmix " + (build_tree() / "bin/trireme").string() + " train x --set opti"),
      open("optimizer."));
  EXPECT_EQ(offers("X=1 mpirun -np 1 trireme eval a : -np 1 trireme exp"), Words{"export"});
  EXPECT_EQ(offers("trireme runs . | X=1 trireme repo"), Words{"report"});
  EXPECT_EQ(offers("trireme-supervise --restarts 5 -- mpirun -np 2 trireme tr"), Words{"train"});
  EXPECT_EQ(offers("nice -n 5 mpirun -np 2 trireme tr"), Words{"train"});
  EXPECT_EQ(offers("nohup trireme train x.txtpb --run"), Words{"--run-dir"});
  EXPECT_EQ(offers("env OMP_NUM_THREADS=1 trireme exp"), Words{"export"});
}

TEST_P(Completion, OffersNothingAfterACompleteCommand) {
  const Scratch scratch;
  scratch.write("a-file", "");
  for (const char* line : {"trireme doctor ", "mpirun -np 2 trireme doctor ", "trireme help zoo ",
                           "trireme help nothing "}) {
    EXPECT_EQ(offers(line, scratch.path()), Words{}) << line;
  }
}

TEST_P(Completion, OffersCommandsAfterHelpAndProgramOptions) {
  EXPECT_EQ(offers("trireme help tr"), Words{"train"});
  EXPECT_EQ(offers("trireme help data "), (Words{"pack", "show", "stats", "tokenizer"}));
  EXPECT_EQ(offers("trireme --help tr"), Words{"train"});
  EXPECT_EQ(offers("trireme --version tr"), Words{"train"});
}

TEST_P(Completion, OffersDataSets) {
  EXPECT_EQ(offers("trireme-get-data "),
            (Words{"cifar10", "fashion-mnist", "mnist", "shakespeare", "speakers"}));
  EXPECT_EQ(offers("trireme-get-data m"), Words{"mnist"});
}

TEST_P(Completion, DoesNotCompleteOtherProgramsOfLaunchers) {
  const auto in = home_.path();  // existing files may be offered
  const Words none = shell() == "bash" ? Words{"(files)"} : Words{};
  EXPECT_EQ(offers("mpirun -np 2 other tr", in), none);
  EXPECT_EQ(offers("mpirun -np 2 /nowhere/trireme tr", in), none);
  EXPECT_EQ(offers("srun --"), Words{"--of-another"});
}

INSTANTIATE_TEST_SUITE_P(Shells, Completion, ::testing::Values("bash", "zsh", "fish"),
                         [](const auto& shell) { return shell.param; });

}  // namespace
}  // namespace trireme::testing
