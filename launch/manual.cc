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

#include "core/file.h"
#include "core/text.h"
#include "core/version.h"
#include "launch/help.h"

namespace trireme::cli {
namespace {

// Escapes text so that roff prints it unchanged. Quotes and dashes stay ASCII, so that commands can
// be copied.
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
  // A dot at the beginning of a line would begin a request.
  return out.starts_with('.') ? "\\&" + out : out;
}

// Returns the name of a command's page: "trireme-data-show".
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

// Splits the text at empty lines.
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

// Converts the footer to sections: EXAMPLES, verbatim, then EXIT STATUS and NOTES as paragraphs.
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

std::string references(const std::vector<std::string>& names) {
  std::string out = ".SH \"SEE ALSO\"\n";
  for (const std::string& name : names) {
    out += ".BR " + escaped(name) + " (1)" + (name == names.back() ? "\n" : ",\n");
  }
  return out;
}

std::string references(const CLI::App& app, std::vector<std::string> names) {
  if (app.get_parent()) names.push_back(page_name(*app.get_parent()));
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) names.push_back(page_name(*command));
  }
  if (app.get_parent() == nullptr) names.push_back("mpirun");
  return references(names);
}

// Returns the beginning of a page: title, name and synopsis.
std::string head(const std::string& name, const std::string& summary, const std::string& usage) {
  std::string release = version();
  release.resize(std::min(release.size(), release.find('+')));  // short enough for the last line
  std::string out = fmt::format(".TH {} 1 {} \"Trireme {}\" \"Trireme Manual\"\n",
                                upper(escaped(name)), today(), release);
  out += fmt::format(".SH NAME\n{} \\- {}\n", escaped(name), escaped(summary));
  return out + ".SH SYNOPSIS\n.B " + escaped(usage) + "\n";
}

std::string page(const CLI::App& app, const std::vector<std::string>& more) {
  const HelpPage help = help_page(app);
  const std::string summary = first_line(help.description);
  std::string out = head(page_name(app), summary, help.usage);
  if (help.description.size() > summary.size()) {
    out += ".SH DESCRIPTION\n" + paragraph(help.description.substr(summary.size() + 1));
  }
  for (const HelpSection& section : help.sections) {
    out += ".SH \"" + upper(escaped(section.title)) + "\"\n";
    for (const HelpRow& row : section.rows) {
      out += ".TP\n.B " + escaped(row.name) + "\n" + paragraph(row.text);
    }
  }
  return out + footer_sections(help.footer) + references(app, more);
}

// Returns the installed name of a script: "trireme-get-data" for launch/get-data.
std::string script_name(const std::string& path) {
  return "trireme-" + path.substr(path.rfind('/') + 1);
}

// Returns the page of a script, from its head comment, which it also prints for --help: a summary,
// the indented usage, and further text.
std::string script_page(const std::string& path) {
  const std::string name = script_name(path);
  std::istringstream lines(read_text(path));
  std::string line;
  std::getline(lines, line);  // the interpreter
  std::string text;
  std::string usage;
  while (std::getline(lines, line) && line.starts_with("#")) {
    line.erase(0, line.starts_with("# ") ? 2 : 1);
    for (size_t at; (at = line.find("launch/" + name.substr(8))) != std::string::npos;) {
      line.replace(at, name.size() - 1, name);
    }
    if (usage.empty() && line.starts_with("  ")) usage = line.substr(2, line.find("   ", 2) - 2);
    text += line + "\n";
  }
  const std::string summary = text.substr(0, text.find_first_of(".,:"));
  return head(name, summary, usage) + ".SH DESCRIPTION\n.EX\n" + paragraph(text) + ".EE\n" +
         references({"trireme"});
}

}  // namespace

std::map<std::string, std::string> manual(const CLI::App& app,
                                          const std::vector<std::string>& scripts) {
  std::map<std::string, std::string> pages;
  std::vector<std::string> names;
  for (const std::string& script : scripts) {
    names.push_back(script_name(script));
    pages[names.back() + ".1"] = script_page(script);
  }
  pages[page_name(app) + ".1"] = page(app, names);
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) pages.merge(manual(*command, {}));
  }
  return pages;
}

}  // namespace trireme::cli
