#include "launch/manual.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/text.h"
#include "launch/help.h"

namespace trireme::cli {
namespace {

// Text as roff prints it unchanged: what commands are typed with stays ASCII.
std::string escaped(std::string_view text) {
  static const std::map<char, std::string_view> kEscapes{
      {'\\', "\\e"},  {'-', "\\-"},   {'"', "\\(dq"}, {'\'', "\\(aq"},
      {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"},
  };
  std::string out;
  for (const char c : text) {
    const auto escape = kEscapes.find(c);
    out += escape == kEscapes.end() ? std::string(1, c) : std::string(escape->second);
  }
  // At the beginning of a line it would begin a request.
  return out.starts_with('.') ? "\\&" + out : out;
}

// "trireme-data-show"
std::string page_name(const CLI::App& app) {
  std::string name = full_name(app);
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string today() {
  const char* given = std::getenv("SOURCE_DATE_EPOCH");
  const std::time_t now = given ? std::atoll(given) : std::time(nullptr);
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(now));
}

// What empty lines separate.
std::vector<std::string> blocks(const std::string& text) {
  std::vector<std::string> found(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) {
      found.back() += line + "\n";
    } else if (!found.back().empty()) {
      found.emplace_back();
    }
  }
  if (found.back().empty()) found.pop_back();
  return found;
}

std::string paragraph(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out += escaped(line) + "\n";
  return out;
}

// ".SH EXAMPLES" and so on: what stands below "Examples:" as it is, the rest as paragraphs.
std::string footer_sections(const std::string& footer) {
  std::string out;
  std::string section;
  const auto begin = [&](const std::string& title) {
    out += section == title ? ".PP\n" : ".SH " + title + "\n";
    section = title;
  };
  for (const std::string& block : blocks(footer)) {
    if (const std::string examples = "Examples:\n"; block.starts_with(examples)) {
      begin("EXAMPLES");
      out += ".EX\n" + paragraph(block.substr(examples.size())) + ".EE\n";
    } else {
      begin(block.starts_with("Exit codes") ? "\"EXIT STATUS\"" : "NOTES");
      out += paragraph(block);
    }
  }
  return out;
}

std::string references(const CLI::App& app) {
  std::vector<std::string> names;
  if (app.get_parent()) names.push_back(page_name(*app.get_parent()));
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) names.push_back(page_name(*command));
  }
  if (app.get_parent() == nullptr) names.push_back("mpirun");
  std::string out = ".SH \"SEE ALSO\"\n";
  for (const std::string& name : names) {
    out += ".BR " + escaped(name) + " (1)" + (name == names.back() ? "\n" : ",\n");
  }
  return out;
}

std::string page(const CLI::App& app) {
  const HelpPage help = help_page(app);
  const std::string summary = first_line(help.description);
  std::string out = fmt::format(".TH {} 1 {} \"trireme {}\" \"Trireme Manual\"\n",
                                upper(escaped(page_name(app))), today(), TRIREME_VERSION);
  out += fmt::format(".SH NAME\n{} \\- {}\n", escaped(page_name(app)), escaped(summary));
  out += ".SH SYNOPSIS\n.B " + escaped(help.usage) + "\n";
  if (help.description.size() > summary.size()) {
    out += ".SH DESCRIPTION\n" + paragraph(help.description.substr(summary.size() + 1));
  }
  for (const HelpSection& section : help.sections) {
    out += ".SH \"" + upper(escaped(section.title)) + "\"\n";
    for (const HelpRow& row : section.rows) {
      out += ".TP\n.B " + escaped(row.name) + "\n" + paragraph(row.text);
    }
  }
  return out + footer_sections(help.footer) + references(app);
}

}  // namespace

std::map<std::string, std::string> manual(const CLI::App& app) {
  std::map<std::string, std::string> pages{{page_name(app) + ".1", page(app)}};
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) pages.merge(manual(*command));
  }
  return pages;
}

}  // namespace trireme::cli
