// `trireme config`: what configurations say, before anything runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "data/sampler.h"
#include "launch/commands.h"
#include "launch/plan.h"
#include "launch/table.h"
#include "trainer/config_diff.h"
#include "trainer/config_show.h"
#include "trainer/init_from.h"
#include "trainer/inputs.h"
#include "trainer/loading.h"
#include "trainer/run_folder.h"
#include "trainer/trainer.h"

namespace trireme {
namespace {

constexpr const char* kFileOrRun = "Configuration (*.txtpb), or the folder of a run";

// Of a run: as it resolved it.
Config load(const std::string& file_or_run, const std::vector<std::string>& assignments = {}) {
  const bool run = std::filesystem::is_directory(file_or_run);
  return load_config(run ? find_run(file_or_run).config().string() : file_or_run, assignments);
}

// --- check ---

struct CheckOptions : ConfigOptions {
  std::string path;
  int ranks = 1;
  bool no_data = false;
};

// What is known of the samples: from the data or, where they are not to be opened, what a network
// of the zoo is meant for.
struct Samples {
  SampleSpec spec;
  bool in_memory = true;
  int64_t train = 0;  // 0: not known
  std::string train_text, eval_text;
};

Samples open_samples(const Config& config) {
  const auto train = open_data(config, Part::kTraining);
  const auto eval = open_data(config, Part::kEvaluation);
  return {train->spec(), train->in_memory(), train->size(), train->description(),
          eval->description()};
}

std::optional<Samples> usual_samples(const Config& config) {
  if (!config.run.model().has_zoo()) return std::nullopt;
  const SampleSpec usual = zoo_samples(config.run.model().zoo().name());
  Samples samples;
  samples.spec = usual;
  samples.train_text = fmt::format("not opened; taken to be {} in {}",
                                   usual.input.shape.to_string(), target_text(usual));
  return samples;
}

void print_row(const char* name, const std::string& text) {
  if (!text.empty()) fmt::print("{:<9} {}\n", name, text);
}

std::string length_text(const Config& config, const BatchPlan& batch, const Samples& samples,
                        int ranks) {
  const TrainConfig& train = config.run.train();
  std::string text = fmt::format("{} over {} rank{}", batch.global, ranks, ranks == 1 ? "" : "s");
  if (batch.passes > 1) text += fmt::format(", in {} passes of {}", batch.passes, batch.micro);
  if (samples.train == 0) return text;
  const int64_t per_epoch = (samples.train + batch.global - 1) / batch.global;
  int64_t steps = train.has_epochs() ? train.epochs() * per_epoch : train.max_steps();
  if (train.has_max_steps()) steps = std::min(steps, train.max_steps());
  return text + fmt::format(", {} steps an epoch, {} in all", per_epoch, steps);
}

std::string memory_text(const RankPlan& plan) {
  std::string parts;
  for (const auto& [name, bytes] : plan.memory) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name,
                         format_bytes(static_cast<double>(bytes)));
  }
  return fmt::format("{} a rank: {}", format_bytes(static_cast<double>(plan.memory_bytes())),
                     parts);
}

// What the network begins with, where that is a file.
std::string initial_text(const Config& config, const Graph& graph) {
  const ModelConfig& model = config.run.model();
  return model.has_init_from() ? read_initial_values(model.init_from(), graph).summary : "";
}

void print_network(const Config& config, const Samples& samples, int ranks) {
  const SampleSpec& spec = samples.spec;
  const bool with_data = samples.train > 0;
  make_mix(config, spec);
  Target target{.config = config, .samples = spec, .in_memory = samples.in_memory};
  const Graph graph = build_network(config, spec);
  const BatchPlan batch = plan_batch(config, ranks);
  // The configuration may be right for another machine than this one.
  std::unique_ptr<RankPlan> plan;
  std::string problem;
  try {
    plan = plan_rank(target, graph, ranks);
  } catch (const ConfigError& error) {
    problem = error.what();
  }
  const std::string size =
      plan ? fmt::format("{} parameters, ",
                         format_count(static_cast<double>(plan->parameters.count())))
           : "";
  print_row("network", fmt::format("{}: {}input {}, {}, {}", model_name(config.run), size,
                                   spec.input.shape.to_string(), target_text(spec),
                                   Precision_Name(config.run.train().precision())));
  if (with_data) print_row("begins", initial_text(config, graph));
  print_row("train", samples.train_text);
  print_row("eval", samples.eval_text);
  print_row("batch", length_text(config, batch, samples, ranks));
  print_row("memory", plan ? memory_text(*plan) : "not planned: not to be run here: " + problem);
}

int check(const CheckOptions& options) {
  const Config config = load(options.path, options.all_assignments());
  const auto samples = options.no_data ? usual_samples(config) : open_samples(config);
  if (samples) {
    print_network(config, *samples, options.ranks);
  } else {
    print_row("network", model_name(config.run) + ": not built, which takes its data");
  }
  fmt::print("{} is right\n", options.path);
  return 0;
}

void add_check(CLI::App& config, Command& chosen) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App& command =
      *config.add_subcommand("check", "Tell whether it is right, and what would run");
  command.add_option("CONFIG", options->path, "Configuration (*.txtpb)")->required();
  options->add_to(command);
  command.add_option("--ranks", options->ranks, "Ranks to plan for; unset: 1")
      ->check(CLI::PositiveNumber);
  command.add_flag(
      "--no-data", options->no_data,
      "Do not open the data, nor init_from; a network of the zoo gets what it is meant for");
  command.footer(R"(Examples:
  trireme config check digits.txtpb --ranks 2
  trireme config check imagenet.txtpb --ranks 8 --no-data

Exit codes: 0 it is right, 2 it is not, 3 its data is damaged.
)");
  command.callback(
      [options, &chosen] { chosen.run = on_one_rank([options] { return check(*options); }); });
}

// --- show ---

struct ShowOptions : ConfigOptions {
  std::string path;
  bool all = false;
};

int show(const ShowOptions& options) {
  const Config config = load(options.path, options.all_assignments());
  const std::string text = options.all ? to_annotated_text(config.run) : to_text(config.run);
  std::fputs(text.c_str(), stdout);
  return 0;
}

void add_show(CLI::App& config, Command& chosen) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App& command =
      *config.add_subcommand("show",
                             "Print it as it is resolved, with --all what fields mean\nWhat is "
                             "printed is a configuration that can be used.");
  command.add_option("CONFIG|RUN", options->path, kFileOrRun)->required();
  options->add_to(command);
  command.add_flag("--all", options->all,
                   "With what every field means, also those that are unset, as comments");
  command.footer(R"(Examples:
  trireme config show digits.txtpb --set batch.global=128
  trireme config show digits.txtpb --all | less
)");
  command.callback(
      [options, &chosen] { chosen.run = on_one_rank([options] { return show(*options); }); });
}

// --- diff ---

struct DiffOptions {
  std::string a, b;
  bool json = false;
};

int diff(const DiffOptions& options) {
  const auto differences = config_differences(load(options.a).run, load(options.b).run);
  if (options.json) {
    auto list = nlohmann::ordered_json::array();
    for (const ConfigDifference& field : differences) {
      list.push_back({{"path", field.path}, {"a", field.a}, {"b", field.b}});
    }
    fmt::print("{}\n", list.dump());
  } else if (!differences.empty()) {
    Table table({{"field"}, {options.a}, {options.b}});
    for (const ConfigDifference& field : differences) {
      table.add({field.path, field.a.empty() ? "-" : field.a, field.b.empty() ? "-" : field.b});
    }
    std::fputs(table.whole().c_str(), stdout);
  }
  return static_cast<int>(differences.empty() ? ExitCode::kDone : ExitCode::kFailure);
}

void add_diff(CLI::App& config, Command& chosen) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App& command =
      *config.add_subcommand("diff", "Print the fields in which two differ, with both values");
  command.add_option("A", options->a, kFileOrRun)->required()->type_name("CONFIG|RUN");
  command.add_option("B", options->b, kFileOrRun)->required()->type_name("CONFIG|RUN");
  command.add_flag("--json", options->json, "One JSON array");
  command.footer(R"(Examples:
  trireme config diff digits.txtpb mnist.txtpb
  trireme config diff runs/a runs/b

A field that is left out is the same as one that is set to its default; "-" is
a field without a value. run_dir is not compared.
Exit codes, as of diff: 0 the same, 1 different, 2 one of them is not right.
)");
  command.callback(
      [options, &chosen] { chosen.run = on_one_rank([options] { return diff(*options); }); });
}

}  // namespace

void add_config(CLI::App& app, Command& chosen) {
  CLI::App& config = *app.add_subcommand("config", "Check, show or compare configurations");
  config.require_subcommand(1);
  config.footer("See `trireme help config check`, and so on.\n");
  add_check(config, chosen);
  add_show(config, chosen);
  add_diff(config, chosen);
}

}  // namespace trireme
