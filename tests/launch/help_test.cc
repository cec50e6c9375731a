// The help of the program, and its messages about usage errors.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/build_tree.h"
#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using Words = std::vector<std::string>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns the completions of the words.
Words completions(Words words) {
  words.insert(words.begin(), {"completion", "words", "--"});
  Words found;
  for (const std::string& line : lines_of(run(words).out)) {
    found.push_back(line.substr(0, line.find('\t')));
  }
  return found;
}

// Returns all commands and subcommands: {"train"}, {"data"}, {"data", "show"}, ...
std::vector<Words> all_commands() {
  std::vector<Words> all;
  for (const std::string& name : completions({""})) {
    all.push_back({name});
    if (name == "completion" || name == "data" || name == "config") {
      for (const std::string& below : completions({name, ""})) all.push_back({name, below});
    }
  }
  return all;
}

TEST(Help, DescribesEachCommandWithin80Columns) {
  const std::vector<Words> commands = all_commands();
  EXPECT_GT(commands.size(), 15u);
  for (Words words : commands) {
    const std::string name = words.back();
    SCOPED_TRACE(name);
    const Outcome by_help = run([&] {
      Words before = words;
      before.insert(before.begin(), "help");
      return before;
    }());
    words.push_back("--help");
    const Outcome help = run(words);
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.error, "");
    EXPECT_EQ(by_help.out, help.out);
    EXPECT_NE(help.out.find("\nUsage: trireme "), std::string::npos) << help.out;
    for (const std::string& line : lines_of(help.out)) EXPECT_LE(line.size(), 80u) << line;
    EXPECT_EQ(help.out.find('\x1b'), std::string::npos);
  }
}

TEST(Help, ListsCommandsInGroupsOneLineEach) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(run({"help"}).out, help.out);
  std::set<std::string> listed;
  for (const std::string& line : lines_of(help.out)) {
    EXPECT_LE(line.size(), 80u) << line;
    EXPECT_FALSE(line.starts_with(std::string(26, ' '))) << "second line: " << line;
    if (line.starts_with("  ") && line.size() > 26 && line[2] != ' ' && line[2] != '-') {
      listed.insert(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  for (const std::string& command : completions({""})) {
    EXPECT_TRUE(listed.contains(command)) << command << " in\n" << help.out;
  }
  for (const char* group : {"Training:", "Inspecting runs, networks and data:",
                            "Checking this machine:", "Examples:"}) {
    EXPECT_NE(help.out.find(group), std::string::npos) << group;
  }
}

// tests/deploy/install_test.sh checks the format of the pages with mandoc.
TEST(Help, WritesAManualPageForEachCommand) {
  const Scratch scratch;
  ASSERT_EQ(run({"help", "--man", scratch.path()}, 0, {"SOURCE_DATE_EPOCH=1700000000"}).code, 0);
  Words commands{""};
  for (const Words& words : all_commands()) {
    std::string name;
    for (const std::string& word : words) name += "-" + word;
    commands.push_back(name);
  }
  for (const std::string& name : commands) {
    const std::string page = read_file(scratch / ("trireme" + name + ".1"));
    EXPECT_NE(page.find(" 1 2023-11-14 "), std::string::npos) << name << page;
    EXPECT_NE(page.find(".SH SYNOPSIS\n.B trireme"), std::string::npos) << name << page;
  }
  const std::string train = read_file(scratch / "trireme-train.1");
  EXPECT_NE(train.find("\n.B \\-\\-run\\-dir DIR\n"), std::string::npos) << train;
  EXPECT_NE(train.find("\n.SH EXAMPLES\n.EX\n"), std::string::npos) << train;
  EXPECT_NE(train.find("\n.SH \"EXIT STATUS\"\n"), std::string::npos) << train;

  const Outcome nowhere = run({"help", "--man", scratch / "none"});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_NE(nowhere.error.find("cannot be created: No such file"), std::string::npos)
      << nowhere.error;
}

// The examples must work in a clone and in an installation.
TEST(Help, ExamplesNameFilesThatExist) {
  int found = 0;
  for (const Words& words : all_commands()) {
    Words with_help = words;
    with_help.push_back("--help");
    std::istringstream text(run(with_help).out);
    for (std::string word; text >> word;) {
      if (!word.ends_with(".txtpb") || word == "run.txtpb") continue;
      EXPECT_TRUE(std::filesystem::exists(TRIREME_SOURCE "/launch/configs/" + word)) << word;
      ++found;
    }
  }
  EXPECT_GT(found, 3);
}

TEST(UsageError, NamesTheNearestValidWordInOneLine) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"trian"}, "there is no command 'trian'; did you mean 'train'? (trireme --help)"},
      {{"trian", "x.txtpb", "--set", "a=b"}, "there is no command 'trian'; did you mean 'train'?"},
      {{"trian", "--help"}, "there is no command 'trian'; did you mean 'train'?"},
      {{"data", "shwo"}, "there is no command 'shwo'; did you mean 'show'? (trireme data --help)"},
      {{"train", "x.txtpb", "--rum-dir", "r"},
       "trireme train has no option '--rum-dir'; did you mean '--run-dir'? (trireme train --help)"},
      {{"train", "x.txtpb", "--rum-dir=r"}, "trireme train has no option '--rum-dir'; did you"},
      {{"config", "diff", "a", "b", "c"}, "trireme config diff takes no argument 'c'"},
      {{"train"}, "CONFIG is required (trireme train --help)"},
      {{"train", "x.txtpb", "--device", "cud"},
       "--device: cud not in {cpu,cuda,auto}; did you mean 'cuda'?"},
      {{"runs", ".", "--sort", "spede"}, "did you mean 'speed'?"},
      {{"help", "trian"}, "trireme has no command 'trian'; did you mean 'train'?"},
      {{"zoo", "--jsno"}, "trireme zoo has no option '--jsno'; did you mean '--json'?"},
      {{"completion", "tcsh"}, "there is no command 'tcsh'"},
  };
  for (const auto& [words, message] : cases) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 2) << message;
    EXPECT_TRUE(outcome.error.starts_with("trireme: ")) << outcome.error;
    EXPECT_NE(outcome.error.find(message), std::string::npos) << outcome.error << message;
    EXPECT_EQ(outcome.error.find('\n'), outcome.error.size() - 1) << outcome.error;
  }
}

TEST(DeprecatedFlag, WorksWithAWarningAndIsHidden) {
  const Outcome outcome = run({"export", "no-such-run", "x.onnx", "--no-normalise"});
  const std::string warning = "warning: --no-normalise is deprecated; use --no-normalize\n";
  EXPECT_TRUE(outcome.error.starts_with(warning)) << outcome.error;
  EXPECT_EQ(run({"export", "--help"}).out.find("normalise"), std::string::npos);
  const std::string error = run({"export", "a", "b.onnx", "--no-normalis"}).error;
  EXPECT_NE(error.find("did you mean '--no-normalize'?"), std::string::npos) << error;
}

// Returns what `trireme --help` prints on a terminal.
std::string help_on_terminal(const Words& environment) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    for (const std::string& setting : environment) {
      const size_t equals = setting.find('=');
      setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
    const std::string program = build_tree() / "bin" / "trireme";
    execl(program.c_str(), program.c_str(), "--help", nullptr);
    _exit(127);
  }
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = read(terminal, part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  close(terminal);
  waitpid(child, nullptr, 0);
  return text;
}

TEST(Help, UsesColorOnlyOnATerminalThatSupportsIt) {
  EXPECT_NE(help_on_terminal({}).find("\x1b["), std::string::npos);
  for (const char* setting : {"NO_COLOR=1", "TERM=dumb"}) {
    const std::string text = help_on_terminal({setting});
    EXPECT_NE(text.find("Usage:"), std::string::npos) << text;
    EXPECT_EQ(text.find('\x1b'), std::string::npos) << setting;
  }
}

TEST(Zoo, CountsMatchThePapers) {
  const Outcome zoo = run({"zoo", "--json"});
  ASSERT_EQ(zoo.code, 0) << zoo.error;
  std::map<std::string, nlohmann::json> networks;
  for (const auto& network : nlohmann::json::parse(zoo.out)) {
    networks[network["name"]] = network;
    EXPECT_GT(network["forward_flops"].get<double>(), 0) << network;
    EXPECT_NE(network["about"], "") << network;
  }
  // The counts of torchvision; ResNet-20 from table 6 of arXiv:1512.03385 (0.27 M).
  EXPECT_EQ(networks["alexnet"]["parameters"], 61'100'840);
  EXPECT_EQ(networks["resnet18"]["parameters"], 11'689'512);
  EXPECT_EQ(networks["resnet50"]["parameters"], 25'557'032);
  EXPECT_NEAR(networks["resnet20"]["parameters"].get<double>(), 0.27e6, 0.01e6);
  // 4.09 G multiply-adds.
  EXPECT_NEAR(networks["resnet50"]["forward_flops"].get<double>(), 8.18e9, 0.02e9);
  const Outcome table = run({"zoo"});
  for (const auto& [name, network] : networks) {
    EXPECT_NE(table.out.find("\n" + name + " "), std::string::npos) << table.out;
  }
}

}  // namespace
}  // namespace trireme::testing
