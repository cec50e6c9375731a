#include "launch/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "comm/control.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "core/version.h"
#include "launch/cli.h"
#include "launch/help.h"
#include "launch/manual.h"

namespace trireme::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  mpirun -np 2 trireme train digits.txtpb --run-dir runs/digits
  trireme eval runs/digits
  trireme runs runs
  trireme inspect resnet50 --ranks 8 --batch 32
  trireme help train

Set configuration fields with --set: --set optimizer.sgd.momentum=0.95.
Exit codes: 0 done, 1 failure, 2 bad config or usage, 3 bad data, 75 stopped by
a signal after a checkpoint (run again to resume), 128+n killed by signal n.
)";

struct Entry {
  const char* group;
  void (*add)(ArgumentParser app, Command& chosen);
};

void add_help(ArgumentParser app, Command& chosen);

// In the order of the help.
constexpr Entry kCommands[] = {
    {"Training", add_train},
    {"Training", add_config},
    {"Inspecting runs, networks and data", add_runs},
    {"Inspecting runs, networks and data", add_inspect},
    {"Inspecting runs, networks and data", add_data},
    {"Inspecting runs, networks and data", add_zoo},
    {"Inspecting runs, networks and data", add_report},
    {"Using trained networks", add_predict},
    {"Using trained networks", add_generate},
    {"Using trained networks", add_eval},
    {"Using trained networks", add_export},
    {"Checking this machine", add_doctor},
    {"Checking this machine", add_bench},
    {"Other", add_help},
    {"Other", add_completion},
};

void print_as(Command& chosen, std::string text) {
  chosen.run = [text = std::move(text)](comm::Communicator& communicator) {
    if (communicator.rank() == 0) std::fputs(text.c_str(), stdout);
    return 0;
  };
}

// Returns the help of the command that `names` lead to, as in `trireme help data show`.
std::string help_on(const CLI::App& app, const std::vector<std::string>& names) {
  const CLI::App* at = &app;
  for (const std::string& name : names) {
    const auto found =
        at->get_subcommands([&](const CLI::App* one) { return one->get_name() == name; });
    if (found.empty()) {
      throw CLI::ValidationError(fmt::format("{} has no command '{}'{}", full_name(*at), name,
                                             did_you_mean(name, command_names(*at))));
    }
    at = found.front();
  }
  // App::help() would describe the command that was chosen, `help`.
  return at->get_formatter()->make_help(at, "", CLI::AppFormatMode::Normal);
}

void write_files(const std::map<std::string, std::string>& files, const std::string& folder) {
  for (const auto& [name, text] : files) {
    replace_durably(std::filesystem::path(folder) / name, text);
  }
}

void add_help(ArgumentParser app, Command& chosen) {
  auto names = std::make_shared<std::vector<std::string>>();
  ArgumentParser command = app.add_command("help", "Print the help of a command");
  command.add_option("COMMAND", *names, "Name of the command, as in `trireme help data show`");
  auto folder = std::make_shared<std::string>();
  command.add_option("--man", *folder, "Write all manual pages into this folder")
      .metavar("DIR")
      .group("");  // hidden: for the installation only
  auto scripts = std::make_shared<std::vector<std::string>>();
  command.add_option("--scripts", *scripts, "Scripts in launch/ that also get manual pages")
      .metavar("PATH")
      .group("");
  command.on_chosen([app, &chosen, names, folder, scripts] {
    if (folder->empty()) {
      print_as(chosen, help_on(app.app(), *names));
    } else {
      chosen.run = on_one_rank([pages = manual(app.app(), *scripts), folder] {
        write_files(pages, *folder);
        return 0;
      });
    }
  });
}

// Prints the help and fails, for a command line without a command.
void set_usage(Command& chosen, const std::string& help) {
  chosen.run = [help](comm::Communicator& communicator) {
    if (communicator.rank() == 0) std::fputs(help.c_str(), stderr);
    return static_cast<int>(ExitCode::kBadConfig);
  };
}

void set_usage_error(Command& chosen, std::string message) {
  chosen.run = [message = std::move(message)](comm::Communicator&) -> int {
    throw comm::AgreedError(message, ExitCode::kBadConfig, 0);
  };
}

}  // namespace

Command parse_command_line(int argc, char** argv) {
  CLI::App app("Trireme trains neural networks with synchronous data parallelism.", "trireme");
  app.formatter(std::make_shared<HelpFormatter>());  // before the commands, which inherit it
  app.set_version_flag("--version", std::string("trireme ") + version(), "Print the version");
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "Print this help");
  Command chosen;
  for (const Entry& entry : kCommands) {
    entry.add(ArgumentParser(app), chosen);
    app.get_subcommands({}).back()->group(entry.group);
  }
  app.footer(kExamples);  // after the commands, which would inherit it
  if (argc == 1) {
    set_usage(chosen, app.help());
    return chosen;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {                             // --help, --version
    if (app.get_subcommands().empty() && !app.remaining().empty()) {  // trireme trian --help
      set_usage_error(chosen, explain_parse_error(app, CLI::ExtrasError(app.remaining())));
      return chosen;
    }
    std::ostringstream out;
    app.exit(request, out, out);
    print_as(chosen, out.str());
  } catch (const CLI::ParseError& error) {
    set_usage_error(chosen, explain_parse_error(app, error));
  }
  return chosen;
}

}  // namespace trireme::cli
