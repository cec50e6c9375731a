// `trireme config`: checks, prints and compares configurations.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "core/error.h"
#include "launch/cli.h"
#include "launch/config_check.h"
#include "launch/options.h"
#include "launch/table.h"
#include "trainer/base/json.h"
#include "trainer/config/config_diff.h"
#include "trainer/config/config_show.h"
#include "trainer/config/run_folder.h"

namespace trireme::cli {
namespace {

constexpr const char* kFileOrRun = "Configuration file (*.txtpb) or folder of a run";

// Loads a configuration file, or the resolved configuration of a run.
train::Config load(const std::string& file_or_run,
                   const std::vector<std::string>& assignments = {}) {
  const bool run = std::filesystem::is_directory(file_or_run);
  return train::load_config(run ? train::find_run(file_or_run).config().string() : file_or_run,
                            assignments);
}

// --- show ---

struct ShowOptions : ConfigOptions {
  std::string path;
  bool all = false;
};

int show(const ShowOptions& options) {
  const train::Config config = load(options.path, options.all_assignments());
  const std::string text =
      options.all ? train::to_annotated_text(config.run) : train::to_text(config.run);
  std::fputs(text.c_str(), stdout);
  return 0;
}

void add_show(ArgumentParser config, Command& chosen) {
  auto options = std::make_shared<ShowOptions>();
  ArgumentParser command =
      config.add_command("show",
                         "Print the resolved configuration\nThe output is itself a valid "
                         "configuration file.");
  command.add_option("CONFIG|RUN", options->path, kFileOrRun).required();
  options->add_to(command);
  command.add_flag("--all", options->all,
                   "Include unset fields, and explain every field in a comment");
  command.epilog(R"(Examples:
  trireme config show digits.txtpb --set batch.global=128
  trireme config show digits.txtpb --all | less
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return show(*options); }); });
}

// --- diff ---

struct DiffOptions {
  std::string a, b;
  bool json = false;
};

int diff(const DiffOptions& options) {
  const auto differences = train::config_differences(load(options.a).run, load(options.b).run);
  if (options.json) {
    auto list = nlohmann::ordered_json::array();
    for (const train::ConfigDifference& field : differences) {
      list.push_back({{"path", field.path}, {"a", field.a}, {"b", field.b}});
    }
    fmt::print("{}\n", train::json_text(list));
  } else if (!differences.empty()) {
    Table table({{"field"}, {options.a}, {options.b}});
    for (const train::ConfigDifference& field : differences) {
      table.add({field.path, field.a.empty() ? "-" : field.a, field.b.empty() ? "-" : field.b});
    }
    std::fputs(table.full_width().c_str(), stdout);
  }
  return static_cast<int>(differences.empty() ? ExitCode::kDone : ExitCode::kFailure);
}

void add_diff(ArgumentParser config, Command& chosen) {
  auto options = std::make_shared<DiffOptions>();
  ArgumentParser command =
      config.add_command("diff", "Print the fields in which two configurations differ");
  command.add_option("A", options->a, kFileOrRun).required().metavar("CONFIG|RUN");
  command.add_option("B", options->b, kFileOrRun).required().metavar("CONFIG|RUN");
  command.add_flag("--json", options->json, "Print the differences as one JSON array");
  command.epilog(R"(Examples:
  trireme config diff digits.txtpb mnist.txtpb
  trireme config diff runs/a runs/b

An unset field equals a field that is set to its default. "-" marks a field
without a value. run_dir is not compared.
Exit codes, as for diff: 0 same, 1 different, 2 one of them is invalid.
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return diff(*options); }); });
}

}  // namespace

void add_config(ArgumentParser app, Command& chosen) {
  ArgumentParser config = app.add_command("config", "Check, show or compare configurations");
  config.require_command();
  config.epilog("`trireme help config check` describes `config check`, and so on.\n");
  add_config_check(config, chosen);
  add_show(config, chosen);
  add_diff(config, chosen);
}

}  // namespace trireme::cli
