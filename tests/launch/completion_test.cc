// What the shell is told while a command is typed, in a real bash.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/beside.h"
#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using Words = std::vector<std::string>;

// What bash would offer for the line, the cursor at its end, in the folder. Offers that come after
// a "=" begin behind it, since bash takes that for the end of a word.
Words in_bash(const std::string& line, const std::filesystem::path& folder = ".") {
  const Scratch scratch;
  const std::string program = tree() / "bin" / "trireme";
  const std::string script = scratch.write(
      "complete.sh", "source <('" + program + "' completion bash)\n" +  //
                         "cd '" + folder.string() + "'\n" +             //
                         "COMP_LINE='" + line + "' COMP_POINT=" + std::to_string(line.size()) +
                         "\n_trireme '" + program +
                         "' 2> /dev/null\n"
                         "printf '%s\\n' \"${COMPREPLY[@]}\"\n");
  const std::string command = "bash --noprofile --norc " + script;
  std::FILE* pipe = popen(command.c_str(), "r");
  Words found;
  std::array<char, 4096> text{};
  while (std::fgets(text.data(), text.size(), pipe)) {
    found.emplace_back(text.data());
    found.back().pop_back();
  }
  EXPECT_EQ(pclose(pipe), 0);
  return found;
}

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(Completion, OffersCommandsAndThoseBelow) {
  EXPECT_EQ(in_bash("trireme tr"), Words{"train"});
  EXPECT_EQ(in_bash("trireme data "), (Words{"pack", "show", "stats"}));
  EXPECT_EQ(in_bash("trireme completion "), (Words{"bash", "fish", "zsh"}));
  EXPECT_TRUE(has(in_bash("trireme "), "zoo"));
}

TEST(Completion, OffersOptionsAndTheirValues) {
  EXPECT_EQ(in_bash("trireme train x.txtpb --run"), Words{"--run-dir"});
  EXPECT_EQ(in_bash("trireme train x.txtpb --device "), (Words{"auto", "cpu", "cuda"}));
  EXPECT_EQ(in_bash("trireme train x.txtpb --device=cu"), Words{"cuda"});
  EXPECT_EQ(in_bash("trireme runs . --sort s"), (Words{"speed", "status", "step"}));
}

TEST(Completion, OffersFieldsOfTheConfiguration) {
  EXPECT_EQ(in_bash("trireme train x.txtpb --set optimizer.sgd.m"),
            Words{"optimizer.sgd.momentum="});
  EXPECT_EQ(in_bash("trireme train x.txtpb --set opti"), Words{"optimizer."});
  EXPECT_EQ(in_bash("trireme train x.txtpb --set train.precision=B"), Words{"BF16"});
}

TEST(Completion, OffersFilesNetworksAndRuns) {
  const Scratch scratch;
  scratch.write("one.txtpb", "");
  scratch.write("other.txt", "");
  scratch.write("runs/first/config.txtpb", "");
  scratch.write("runs/none/x", "");
  const auto in = scratch.path();
  EXPECT_EQ(in_bash("trireme train ", in), (Words{"one.txtpb", "runs/"}));
  EXPECT_EQ(in_bash("trireme eval runs/", in), (Words{"runs/first", "runs/none/"}));
  EXPECT_EQ(in_bash("trireme bench lene", in), Words{"lenet"});
  EXPECT_EQ(in_bash("trireme inspect o", in), Words{"one.txtpb"});
  EXPECT_EQ(in_bash("trireme config diff one.txtpb runs/f", in), Words{"runs/first"});
  EXPECT_EQ(in_bash("trireme config diff one.txtpb one.txtpb ", in), Words{""});
}

TEST(Completion, EachShellGetsAScript) {
  EXPECT_NE(run({"completion", "bash"}).out.find("complete -F _trireme trireme"),
            std::string::npos);
  EXPECT_TRUE(run({"completion", "zsh"}).out.starts_with("#compdef trireme\n"));
  EXPECT_NE(run({"completion", "fish"}).out.find("complete -c trireme"), std::string::npos);
}

}  // namespace
}  // namespace trireme::testing
