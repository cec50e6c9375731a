// Declares command-line arguments, with the names of Python's argparse. A wrapper around CLI11,
// whose header adds six seconds to the compile time of each file that includes it.
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

// An option or a positional argument of a command. The functions return it, for chaining.
class Argument {
 public:
  explicit Argument(CLI::Option& option) : option_(&option) {}

  Argument required();
  // Sets the placeholder of the value in help and completion, such as "DIR".
  Argument metavar(const std::string& name);
  // Lists the argument under this heading in help; "" hides it.
  Argument group(const std::string& heading);
  // Shows the current value of the variable as the default in help.
  Argument show_default();
  // Reads the value from this environment variable if the option is not given.
  Argument environment(const std::string& variable);
  // Takes only one value per occurrence of the option.
  Argument one_value_each();

  Argument positive();
  Argument not_negative();
  Argument between(int smallest, int largest);
  Argument one_of(const std::vector<std::string>& values);
  // Accepts a number of bytes, optionally with a unit (256MiB).
  Argument bytes();
  // Accepts a number of seconds, optionally with a unit (25s, 2m, 1h).
  Argument seconds();
  // Validates the text. `problem_of` returns an error message, or "" if the text is valid.
  Argument check(std::function<std::string(const std::string& text)> problem_of);

 private:
  CLI::Option* option_;
};

// Declares the arguments and subcommands of a command.
class ArgumentParser {
 public:
  explicit ArgumentParser(CLI::App& app) : app_(&app) {}

  // Lists of commands show only the first line of `help`.
  ArgumentParser add_command(const std::string& name, const std::string& help);
  // Adds an option ("--steps", "-o,--out") or a positional argument ("CONFIG") that sets `value`.
  // T is std::string, a vector of strings, int, int64_t, double or an optional number; the end of
  // cli.cc lists the instantiations.
  template <class T>
  Argument add_option(const std::string& name, T& value, const std::string& help);
  Argument add_flag(const std::string& name, bool& value, const std::string& help);
  // Adds the old name of a flag. It also sets `value`, prints a warning that names the new flag,
  // and does not appear in help, completion or suggestions.
  void add_deprecated_flag(const std::string& name, const std::string& replacement, bool& value);
  // Adds an option that takes one of the names in `choices` and sets `value` to its value.
  template <class T>
  Argument add_choice(const std::string& name, T& value,
                      const std::vector<std::pair<std::string, T>>& choices,
                      const std::string& help) {
    std::vector<std::string> names;
    for (const auto& choice : choices) names.push_back(choice.first);
    return add_choice(name, names, help,
                      [&value, choices](size_t i) { value = choices[i].second; });
  }

  // Sets the text below the options in help.
  void epilog(const std::string& text);
  // Lists the command under this heading in help; "" hides it.
  void group(const std::string& heading);
  // Requires a subcommand after this command.
  void require_command();
  // Calls `callback` if the command line selects this command, after its arguments have been set.
  void on_chosen(std::function<void()> callback);

  CLI::App& app() const { return *app_; }

 private:
  Argument add_choice(const std::string& name, const std::vector<std::string>& names,
                      const std::string& help, std::function<void(size_t)> choose);

  CLI::App* app_;
};

}  // namespace trireme::cli
