#include "launch/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "core/text.h"
#include "launch/options.h"
#include "trainer/base/process.h"

namespace trireme::cli {
namespace {

constexpr size_t kNameColumn = 26;
constexpr size_t kMinWidth = 60;
constexpr size_t kMaxWidth = 100;

size_t width() {
  return std::clamp(static_cast<size_t>(train::terminal_columns()), kMinWidth, kMaxWidth);
}

// Splits the text into lines of at most `max_width` characters.
std::vector<std::string> wrapped(const std::string& text, size_t max_width) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > max_width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

std::string paragraphs(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    result += fmt::format("{}\n", fmt::join(wrapped(line, width()), "\n"));
  }
  return result;
}

std::string heading(const std::string& text) {
  return train::stdout_in_color() ? "\n\x1b[1m" + text + ":\x1b[0m\n" : "\n" + text + ":\n";
}

// Formats a row as "  name   text", where the text may take several lines.
std::string format_row(const HelpRow& row) {
  std::string text = "  " + row.name;
  const bool fits = text.size() + 2 <= kNameColumn;
  text.append(fits ? kNameColumn - text.size() : 0, ' ');
  if (!fits) text += "\n" + std::string(kNameColumn, ' ');
  const auto lines = wrapped(row.text, width() - kNameColumn);
  return fmt::format("{}{}\n", text, fmt::join(lines, "\n" + std::string(kNameColumn, ' ')));
}

HelpRow option_row(const CLI::Option& option) {
  const std::string value = value_name(option);
  HelpRow row;
  row.name =
      option.get_positional()
          ? option.get_name(true, false)
          : fmt::format("{}",
                        fmt::join(CLI::detail::split(option.get_name(false, true), ','), ", "));
  if (!option.get_positional() && !value.empty()) row.name += " " + value;
  row.text = option.get_description();
  if (option.nonpositional() && option.get_required()) row.text += " (required)";
  if (!option.get_default_str().empty()) {
    row.text += fmt::format(" [{}]", option.get_default_str());
  }
  if (!option.get_envname().empty()) row.text += fmt::format(" [${}]", option.get_envname());
  return row;
}

using Predicate = std::function<bool(const CLI::Option*)>;

HelpSection option_section(const CLI::App& app, const std::string& title, const std::string& group,
                           const Predicate& is_listed) {
  HelpSection section{title, {}};
  for (const CLI::Option* option : app.get_options(
           [&](const CLI::Option* one) { return one->get_group() == group && is_listed(one); })) {
    section.rows.push_back(option_row(*option));
  }
  return section;
}

std::string usage(const CLI::App& app) {
  std::string text = full_name(app);
  if (!app.get_subcommands({}).empty()) text += " COMMAND";
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* one) { return one->get_positional(); })) {
    const std::string name =
        option->get_name(true, false) + (option->get_expected_max() > 1 ? "..." : "");
    text += option->get_required() ? " " + name : " [" + name + "]";
  }
  return text + " [OPTIONS]";
}

std::vector<HelpSection> command_sections(const CLI::App& app) {
  std::vector<HelpSection> sections;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string& group = command->get_group();
    if (group.empty()) continue;
    const std::string title = group == "Subcommands" ? "Commands" : group;
    auto section = std::ranges::find(sections, title, &HelpSection::title);
    if (section == sections.end()) section = sections.insert(section, HelpSection{title, {}});
    section->rows.push_back({command->get_name(), first_line(command->get_description())});
  }
  return sections;
}

// Returns the groups of the options. The options that commands have in common come last.
std::vector<std::string> option_groups(const CLI::App& app) {
  std::vector<std::string> groups = app.get_groups();
  std::erase(groups, "");
  std::stable_partition(groups.begin(), groups.end(),
                        [](const std::string& group) { return group != kConfigGroup; });
  return groups;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Explains an unknown command, option or argument.
std::string explain_word(const CLI::App& at, const std::string& word) {
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("{} has no option '{}'{}", full_name(at), name,
                       did_you_mean(name, option_names(at)));
  }
  if (!at.get_subcommands({}).empty()) {
    return fmt::format("there is no command '{}'{}", word, did_you_mean(word, command_names(at)));
  }
  return fmt::format("{} takes no argument '{}'", full_name(at), word);
}

// Returns a suggestion for a message like "--device: gpu not in {cpu,cuda,auto}".
std::string suggestion(const std::string& message) {
  const size_t end = message.find(" not in {");
  const size_t begin = message.find(": ");
  if (end == std::string::npos || begin == std::string::npos || begin + 2 > end) return "";
  const size_t list = end + 9;
  const auto values = CLI::detail::split(message.substr(list, message.rfind('}') - list), ',');
  return did_you_mean(message.substr(begin + 2, end - begin - 2), values);
}

}  // namespace

HelpPage help_page(const CLI::App& app) {
  HelpPage page{app.get_description(), usage(app), command_sections(app), app.get_footer()};
  page.sections.push_back(option_section(
      app, "Arguments", "Options", [](const CLI::Option* one) { return one->get_positional(); }));
  // --help is listed only for the program, not for each command.
  const auto is_listed = [&app](const CLI::Option* one) {
    return one->nonpositional() && (!app.get_parent() || one != app.get_help_ptr());
  };
  for (const std::string& group : option_groups(app)) {
    page.sections.push_back(option_section(app, group, group, is_listed));
  }
  std::erase_if(page.sections, [](const HelpSection& section) { return section.rows.empty(); });
  return page;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string /*name*/,
                                     CLI::AppFormatMode /*mode*/) const {
  const HelpPage page = help_page(*app);
  std::string text = paragraphs(page.description) + "\nUsage: " + page.usage + "\n";
  for (const HelpSection& section : page.sections) {
    text += heading(section.title);
    for (const HelpRow& row : section.rows) text += format_row(row);
  }
  if (!page.footer.empty()) text += "\n" + page.footer;
  if (!text.ends_with('\n')) text += "\n";
  return text;
}

const CLI::App& chosen_app(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_app(*chosen.front());
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() ? full_name(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> option_values(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

std::string value_name(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const auto values = option_values(option);
  if (!values.empty()) return fmt::format("{}", fmt::join(values, "|"));
  const std::string type = option.get_type_name();
  const std::string name = type.substr(0, type.find_first_of(":[ "));
  if (option.get_positional() && name == "TEXT") return option.get_name(true, false);
  return name == "INT" || name == "UINT" || name == "FLOAT" ? "N" : name;
}

std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& at = chosen_app(app);
  const std::vector<std::string> left = app.remaining(true);
  const std::string message = error.what();
  const std::string what =
      left.empty() ? message + suggestion(message) : explain_word(at, left.front());
  return fmt::format("{} ({} --help)", what, full_name(at));
}

}  // namespace trireme::cli
