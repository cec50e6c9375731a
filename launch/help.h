// Help texts and messages about usage errors.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trireme::cli {

// The parts of the help of a command, before formatting. Lists of commands show the first line of
// the description.
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
  std::string footer;                 // examples and notes; not wrapped
};
HelpPage help_page(const CLI::App& app);

// Formats help pages to the width of the terminal, with bold headings if it supports color.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// Returns the innermost command that the command line selected, such as `trireme data show`, or
// `app` if there is none.
const CLI::App& chosen_app(const CLI::App& app);
// Returns the name of a command with those of its parents: "trireme data show".
std::string full_name(const CLI::App& app);
// Returns the names of the subcommands that are not hidden.
std::vector<std::string> command_names(const CLI::App& app);
std::string first_line(const std::string& text);

// Returns the values of an option that accepts only certain values (CLI::IsMember); otherwise
// empty.
std::vector<std::string> option_values(const CLI::Option& option);
// Returns the placeholder for the value in help and completion: "DIR", "N", "cpu|cuda|auto". For a
// positional argument without one it is the argument's name; for flags it is empty.
std::string value_name(const CLI::Option& option);

// Returns a one-line message about an invalid command line, with the nearest valid word.
std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace trireme::cli
