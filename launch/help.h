// How the program explains itself on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trireme::cli {

// What help says about a command, before it is laid out. The first line of its description is what
// lists show.
struct HelpRow {
  std::string name;  // "--run-dir DIR"
  std::string text;
};
struct HelpSection {
  std::string title;  // "Arguments"
  std::vector<HelpRow> rows;
};
struct HelpPage {
  std::string description;
  std::string usage;                  // "trireme train CONFIG [OPTIONS]"
  std::vector<HelpSection> sections;  // commands, arguments, options by group
  std::string footer;                 // examples; lines stay as they are
};
HelpPage help_page(const CLI::App& app);

// A help page as wide as the terminal, headings bold where color is wanted.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// The command that was chosen last: "trireme data show"; the program where none was.
const CLI::App& chosen_app(const CLI::App& app);
std::string full_name(const CLI::App& app);
// "train", "eval", ...: those that are listed.
std::vector<std::string> command_names(const CLI::App& app);
std::string first_line(const std::string& text);

// The values that the option accepts where they are a few, as in CLI::IsMember.
std::vector<std::string> option_values(const CLI::Option& option);
// What stands for its value in help and completion: "DIR", "N", "cpu|cuda|auto", of an argument its
// name where it has no other; empty for flags.
std::string value_name(const CLI::Option& option);

// One line on what was wrong with the command line, with the nearest valid word.
std::string explain_mistake(const CLI::App& app, const CLI::ParseError& error);

}  // namespace trireme::cli
