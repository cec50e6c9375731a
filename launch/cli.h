// The command line of a command, by the names of Python's argparse. CLI11 does the work; only few
// files include it, since each that does takes six seconds longer to compile.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trireme::cli {

// An option or an argument of a command. The functions return it, for chaining.
class Argument {
 public:
  explicit Argument(CLI::Option& option) : option_(&option) {}

  Argument required();
  // What stands for the value in help and completion: "DIR".
  Argument metavar(const std::string& name);
  // Help lists it under this heading; "" hides it.
  Argument group(const std::string& heading);
  // Help shows the present value of its variable as its default.
  Argument show_default();
  // Taken from the environment where it is not given.
  Argument environment(const std::string& variable);
  // One value each time that it is given.
  Argument one_value_each();

  Argument positive();
  Argument not_negative();
  Argument between(int smallest, int largest);
  Argument one_of(const std::vector<std::string>& values);
  // Bytes, or with a unit: 256MiB.
  Argument bytes();
  // Seconds, or with a unit: 25s, 2m, 1h.
  Argument seconds();
  // `problem_of` returns what is wrong with the text, "" where nothing is.
  Argument check(std::function<std::string(const std::string& text)> problem_of);

 private:
  CLI::Option* option_;
};

// Takes the arguments of a command.
class ArgumentParser {
 public:
  explicit ArgumentParser(CLI::App& app) : app_(&app) {}

  // The first line of `help` is what lists of commands show.
  ArgumentParser add_command(const std::string& name, const std::string& help);
  // An option ("--steps", "-o,--out") or an argument ("CONFIG") that sets `value`, which is a
  // string, strings, an int, int64_t or double, or an optional number: see the end of cli.cc.
  template <class T>
  Argument add_option(const std::string& name, T& value, const std::string& help);
  Argument add_flag(const std::string& name, bool& value, const std::string& help);
  // An option whose values have names.
  template <class T>
  Argument add_choice(const std::string& name, T& value,
                      const std::vector<std::pair<std::string, T>>& choices,
                      const std::string& help) {
    std::vector<std::string> names;
    for (const auto& choice : choices) names.push_back(choice.first);
    return add_choice(name, names, help,
                      [&value, choices](size_t i) { value = choices[i].second; });
  }

  // Text below the options.
  void epilog(const std::string& text);
  void group(const std::string& heading);  // as that of an Argument
  // It is not a command by itself: one of its commands has to follow.
  void require_command();
  // Called when the command line names this command, after its arguments have been set.
  void on_chosen(std::function<void()> callback);

  CLI::App& app() const { return *app_; }

 private:
  Argument add_choice(const std::string& name, const std::vector<std::string>& names,
                      const std::string& help, std::function<void(size_t)> choose);

  CLI::App* app_;
};

}  // namespace trireme::cli
