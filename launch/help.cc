#include "launch/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "core/text.h"
#include "launch/options.h"
#include "trainer/process.h"

namespace trireme {
namespace {

constexpr size_t kNameColumn = 26;
constexpr size_t kNarrowest = 60;
constexpr size_t kWidest = 100;

size_t width() { return std::clamp(static_cast<size_t>(terminal_columns()), kNarrowest, kWidest); }

// Lines of at most `room` characters.
std::vector<std::string> wrapped(const std::string& text, size_t room) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > room) {
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
  return stdout_in_colour() ? "\n\x1b[1m" + text + "\x1b[0m\n" : "\n" + text + "\n";
}

// "  name   description", which may take several lines.
std::string row(const std::string& name, const std::string& description) {
  std::string text = "  " + name;
  const bool beside = text.size() + 2 <= kNameColumn;
  text.append(beside ? kNameColumn - text.size() : 0, ' ');
  if (!beside) text += "\n" + std::string(kNameColumn, ' ');
  const auto lines = wrapped(description, width() - kNameColumn);
  return fmt::format("{}{}\n", text, fmt::join(lines, "\n" + std::string(kNameColumn, ' ')));
}

std::string option_row(const CLI::Option& option) {
  const std::string value = value_name(option);
  std::string name =
      option.get_positional()
          ? option.get_name(true, false)
          : fmt::format("{}",
                        fmt::join(CLI::detail::split(option.get_name(false, true), ','), ", "));
  if (!option.get_positional() && !value.empty()) name += " " + value;
  std::string description = option.get_description();
  if (option.nonpositional() && option.get_required()) description += " (required)";
  if (!option.get_default_str().empty()) {
    description += fmt::format(" [{}]", option.get_default_str());
  }
  if (!option.get_envname().empty()) description += fmt::format(" [${}]", option.get_envname());
  return row(name, description);
}

using Listed = std::function<bool(const CLI::Option*)>;

std::string option_rows(const CLI::App& app, const std::string& title, const std::string& group,
                        const Listed& listed) {
  std::string rows;
  for (const CLI::Option* option : app.get_options(
           [&](const CLI::Option* one) { return one->get_group() == group && listed(one); })) {
    rows += option_row(*option);
  }
  return rows.empty() ? "" : heading(title + ":") + rows;
}

std::string usage(const CLI::App& app) {
  std::string text = "Usage: " + full_name(app);
  if (!app.get_subcommands({}).empty()) text += " COMMAND";
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* one) { return one->get_positional(); })) {
    const std::string name =
        option->get_name(true, false) + (option->get_expected_max() > 1 ? "..." : "");
    text += option->get_required() ? " " + name : " [" + name + "]";
  }
  return text + " [OPTIONS]\n";
}

std::string command_rows(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string& group = command->get_group();
    if (!group.empty() && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  std::string text;
  for (const std::string& group : groups) {
    text += heading((group == "Subcommands" ? "Commands" : group) + ":");
    for (const CLI::App* command :
         app.get_subcommands([&](const CLI::App* one) { return one->get_group() == group; })) {
      text += row(command->get_name(), first_line(command->get_description()));
    }
  }
  return text;
}

// What commands have in common comes last.
std::vector<std::string> option_groups(const CLI::App& app) {
  std::vector<std::string> groups = app.get_groups();
  std::erase(groups, "");
  std::ranges::stable_partition(groups,
                                [](const std::string& group) { return group != kConfigGroup; });
  return groups;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Of a word that no command or option has taken.
std::string explain_word(const CLI::App& at, const std::string& word) {
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("{} has no option '{}'{}", full_name(at), name,
                       did_you_mean(name, option_names(at)));
  }
  if (!at.get_subcommands({}).empty()) {
    return fmt::format("there is no command '{}'{}", word, did_you_mean(word, command_names(at)));
  }
  return fmt::format("{} has no use for '{}'", full_name(at), word);
}

// "--device: gpu not in {cpu,cuda,auto}" with the nearest of them.
std::string suggestion(const std::string& message) {
  const size_t end = message.find(" not in {");
  const size_t begin = message.find(": ");
  if (end == std::string::npos || begin == std::string::npos || begin + 2 > end) return "";
  const size_t list = end + 9;
  const auto values = CLI::detail::split(message.substr(list, message.rfind('}') - list), ',');
  return did_you_mean(message.substr(begin + 2, end - begin - 2), values);
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string /*name*/,
                                     CLI::AppFormatMode /*mode*/) const {
  std::string text = paragraphs(app->get_description()) + "\n" + usage(*app) + command_rows(*app);
  text += option_rows(*app, "Arguments", "Options",
                      [](const CLI::Option* one) { return one->get_positional(); });
  // That a command has --help is known to who reads it.
  const auto named = [app](const CLI::Option* one) {
    return one->nonpositional() && (!app->get_parent() || one != app->get_help_ptr());
  };
  for (const std::string& group : option_groups(*app)) {
    text += option_rows(*app, group, group, named);
  }
  if (!app->get_footer().empty()) text += "\n" + app->get_footer();
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

std::string explain_mistake(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& at = chosen_app(app);
  const std::vector<std::string> left = app.remaining(true);
  const std::string message = error.what();
  const std::string what =
      left.empty() ? message + suggestion(message) : explain_word(at, left.front());
  return fmt::format("{} ({} --help)", what, full_name(at));
}

}  // namespace trireme
