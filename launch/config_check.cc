// `trireme config check`: finds every error that would appear before the first training step,
// without training. The only exception are errors that require reading every sample of a large set.
#include "launch/config_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/classes.h"
#include "data/fingerprint.h"
#include "launch/cli.h"
#include "launch/message.h"
#include "launch/plan.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/checkpoint/resume_check.h"
#include "trainer/config/class_weights.h"
#include "trainer/config/grid.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"
#include "trainer/config/monitor.h"
#include "trainer/config/run_folder.h"
#include "trainer/optimizer/training_plan.h"
#include "trainer/run/train.h"
#include "trainer/step/batch_statistics.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct CheckOptions : ConfigOptions {
  std::string path;
  int ranks = 0;  // 0: as many as pipeline stages
  bool no_data = false;
  bool accept_data_change = false;
};

// The properties of the samples: those of the data or, with --no-data, the usual ones of a zoo
// network.
struct Samples {
  data::SampleSpec spec;
  bool in_memory = true;
  bool all_read = true;
  int64_t train = 0;  // number of training samples; 0 if unknown
  std::string train_text, eval_text;
  std::unique_ptr<data::Dataset> training = {}, evaluation = {};  // null if not opened
};

void print_row(const char* name, const std::string& text) {
  if (!text.empty()) print_message("{:<9} {}\n", name, text);
}

// --- Samples ---

// Reads the samples that data::CheckedSamples selects, as training would. Returns a text with their
// number and, if bad records are skipped, how many of them were bad. Sets `all` to false if there
// are others.
std::string read_some(const train::Config& config, const data::Dataset& dataset, bool& all) {
  const data::SampleSpec& spec = dataset.spec();
  std::vector<std::byte> input(spec.input.bytes()), target(spec.target.bytes());
  const data::CheckedSamples checked(dataset.size(), input.size() + target.size());
  data::BadRecordPolicy policy(data::bad_record_limit(config.run.data()));
  for (int64_t i = 0; i < checked.count(); ++i) {
    try {
      dataset.read({.index = checked[i]}, input.data(), target.data());
    } catch (const DataError& error) {
      policy.add(error);
      policy.check(dataset.description());
    }
  }
  const int64_t bad = policy.found().count;
  policy.check_not_empty(dataset.description(), checked.count() - bad);
  all = all && checked.count() == dataset.size();
  std::string text = fmt::format("{} of {} samples", checked.count(), dataset.size());
  if (bad > 0) {
    text += fmt::format(", {} of them bad; the first: {}", bad, policy.found().first.front());
  }
  return text;
}

// Opens the data and checks the configuration against it. Replaces balanced class weights in the
// configuration by numbers.
Samples open_samples(train::Config& config, std::vector<std::string>& checked) {
  auto train = train::open_data(config, data::Part::kTraining);
  auto eval = train::open_data(config, data::Part::kEvaluation, {}, train->columns());
  data::check_compatible(*train, *eval);
  train::check_best_metric(config, *eval);
  train::balance_class_weights(config, *train);
  for (const std::string& line : data::class_problems(config.run.data(), *train, *eval)) {
    print_row("warning", line);
  }
  bool all_read = true;
  checked.push_back("train: " + read_some(config, *train, all_read));
  checked.push_back("eval: " + read_some(config, *eval, all_read));
  Samples samples{train->spec(), train->in_memory(),   all_read,
                  train->size(), train->description(), eval->description()};
  samples.training = std::move(train);
  samples.evaluation = std::move(eval);
  return samples;
}

std::optional<Samples> usual_samples(const train::Config& config) {
  if (!config.run.model().has_zoo()) return std::nullopt;
  const data::SampleSpec usual = zoo_samples(config.run.model().zoo().name());
  Samples samples;
  samples.spec = usual;
  samples.train_text = fmt::format("not opened; assumed to be {} with {}",
                                   usual.input.shape.to_string(), target_text(usual));
  return samples;
}

// --- Network and memory ---

std::string length_text(const train::Config& config, const train::BatchPlan& batch,
                        const Samples& samples, int ranks) {
  const TrainConfig& train = config.run.train();
  std::string text = fmt::format("{} over {} rank{}", batch.global, ranks, ranks == 1 ? "" : "s");
  if (batch.passes > 1) text += fmt::format(", in {} passes of {}", batch.passes, batch.micro);
  if (samples.train == 0) return text;
  const int64_t per_epoch = (samples.train + batch.global - 1) / batch.global;
  int64_t steps = train.has_epochs() ? train.epochs() * per_epoch : train.max_steps();
  if (train.has_max_steps()) steps = std::min(steps, train.max_steps());
  return text + fmt::format(", {} steps per epoch, {} in total", per_epoch, steps);
}

std::string stages_text(const train::Config& config, int ranks) {
  const train::Grid grid = train::grid_of(config.run, 0, ranks);
  if (!grid.has_pipeline()) return "";
  return fmt::format("{} of {} replica{}", grid.stages, grid.replicas,
                     grid.replicas == 1 ? "" : "s");
}

std::string memory_text(const train::Config& config, const RankPlan& plan) {
  std::string parts;
  for (const train::RankMemory::Part& part : plan.memory.parts) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.name, bytes_text(part.bytes));
  }
  const std::string repeated = train::recomputation_text(*plan.program);
  const std::string who = config.run.parallel().stages() > 1
                              ? fmt::format("rank of stage {}, which needs most", plan.stage)
                              : "rank";
  return fmt::format("{} per {}: {}{}", bytes_text(plan.memory.total()), who, parts,
                     repeated.empty() ? "" : "; " + repeated);
}

// Reads what the network is initialized from, gives it as many positions, and returns a
// description; "" if there is none, or if the run resumes.
std::string read_initial(train::Config& config, const Samples& samples) {
  if (!config.run.model().has_init_from()) return "";
  const train::RunFolder run{config.run.run_dir()};
  if (!run.path.empty() && !train::Checkpoints(run.checkpoints(), 1).list().empty()) return "";
  model::Graph graph = train::build_network(config, samples.spec);
  try {
    train::StoredModel stored = train::read_stored_model(config.run.model().init_from());
    if (train::keep_positions(config, graph, train::stored_positions(stored, graph))) {
      graph = train::build_network(config, samples.spec);
    }
    return train::read_initial_values(std::move(stored), config, graph, *samples.training).summary;
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

std::string weights_row(const train::Config& config) {
  const std::vector<float> weights = train::class_weights(config.run);
  if (weights.empty()) return "";
  const auto [min, max] = std::ranges::minmax(weights);
  return fmt::format("{} classes, {:.4g} to {:.4g}", weights.size(), min, max);
}

// Returns the size of a checkpoint in bytes, or 0 if memory could not be planned. Sets in the
// configuration what is to be chosen.
size_t print_network(train::Config& config, const Samples& samples, const CheckOptions& options,
                     std::vector<std::string>& skipped) {
  const data::SampleSpec& spec = samples.spec;
  const int ranks = options.ranks;
  train::make_mix(config, spec);
  const std::string initial = options.no_data ? "" : read_initial(config, samples);
  Target target{.config = config, .samples = spec, .in_memory = samples.in_memory};
  const model::Graph graph = train::build_network(config, spec);
  data::OrderOptions order;
  if (samples.training) {
    order = train::training_order(config, *samples.training);
    train::build_shorter_networks(config, graph, order, *samples.training);
    const std::string problem = train::padding_problem(config, graph, *samples.training);
    if (!problem.empty()) train::warn_on_stderr(problem);
  }
  std::unique_ptr<RankPlan> plan;
  std::string problem;
  try {
    if (config.run.parallel().stages() == 0) predict_layouts(target, graph, ranks, {});
    plan = plan_rank(target, graph, ranks, ranks);
    BatchConfig& batch = *target.config.run.mutable_batch();
    if (batch.micro() == train::kLargestMicro) batch.set_micro(plan->batch.micro);
    config = target.config;
  } catch (const Error& error) {
    if (!options.no_data) throw;
    problem = error.what();  // concerns this machine, which may not be the one to train on
  }
  const std::string size =
      plan ? fmt::format("{} parameters, ",
                         format_count(static_cast<double>(plan->parameters.count())))
           : "";
  print_row("network", fmt::format("{}: {}input {}, {}, {}", train::model_name(config.run), size,
                                   spec.input.shape.to_string(), target_text(spec),
                                   Precision_Name(config.run.train().precision())));
  print_row("init", initial);
  print_row("train", samples.train_text);
  print_row("eval", samples.eval_text);
  print_row("weights", weights_row(config));
  const train::BatchPlan batch = plan ? plan->batch : train::plan_batch(config, ranks);
  train::require_statistics(target.config, graph, batch, ranks, samples.train);
  print_row("batch", length_text(config, batch, samples, ranks));
  print_row("warning",
            train::statistics_warning(graph, batch, train::grid_of(target.config.run, 0, ranks)));
  print_row("padding", train::padding_text(config, order));
  print_row("stages", stages_text(target.config, ranks));
  print_row("memory", plan ? memory_text(target.config, *plan) : "not planned: " + problem);
  if (!plan) return 0;
  problem = memory_problem(target, graph, *plan);
  // With --no-data, training will happen on another machine, so this is only a warning.
  if (!problem.empty() && !options.no_data) throw ConfigError(problem);
  print_row("warning", problem);
  if (plan->budget.bytes == 0) skipped.emplace_back("GPU memory");
  return plan->checkpoint_bytes;
}

// --- The run's folder ---

[[noreturn]] void refuse_folder(const train::Config& config, const fs::path& path,
                                const std::string& problem) {
  throw ConfigError(config.where("run_dir"),
                    fmt::format("{} {}; choose another with --run-dir", path.string(), problem));
}

// Checks whether training could resume from the newest checkpoint, and prints what has changed
// since. Throws the errors that training would throw.
void check_resume(train::Config& config, const fs::path& checkpoints, const Samples& samples,
                  int ranks, bool accept_data_change) {
  const train::Warn warn = [](const std::string& text) { print_row("warning", text); };
  const auto found = train::newest_checkpoint(checkpoints, warn);
  if (!found) return;
  model::Graph graph = train::build_network(config, samples.spec);
  if (train::keep_positions(config, graph,
                            train::stored_positions(found->path / train::kModelFile, graph))) {
    graph = train::build_network(config, samples.spec);
  }
  const auto changes = train::check_changes(*found, {config, graph, ranks, samples.train});
  const train::RunData data{data::fingerprint_of(*samples.training),
                            data::fingerprint_of(*samples.evaluation)};
  const std::string change = train::describe_data_change(found->state, data);
  if (!change.empty() && !accept_data_change) throw train::data_change_error(*found, change);
  if (!change.empty()) print_row("changed", change);
  for (const std::string& line : changes) print_row("changed", line);
}

// Checks that checkpoints of `bytes` each can be written to the run folder, without writing
// anything. Returns the folder of the existing checkpoints, or an empty path if there are none.
fs::path check_folder(const train::Config& config, size_t bytes) {
  const bool named = !config.run.run_dir().empty();
  const fs::path run = named ? config.run.run_dir() : train::kRunsFolder;
  if (named) train::RunFolder{run}.require_own_files(config.run);
  fs::path there = fs::absolute(run).lexically_normal();
  std::error_code none;
  while (!fs::exists(there, none) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, none)) refuse_folder(config, there, "is not a folder");
  if (::access(there.c_str(), W_OK | X_OK) != 0) {
    refuse_folder(config, there, fmt::format("cannot be written to ({})", std::strerror(errno)));
  }
  const fs::space_info space = fs::space(there, none);
  if (!none && space.available < bytes) {
    refuse_folder(config, there,
                  fmt::format("has {} free, but a checkpoint takes {}", bytes_text(space.available),
                              bytes_text(bytes)));
  }
  std::string text = named ? run.string() : "a new folder in runs/";
  const fs::path checkpoints = train::RunFolder{run}.checkpoints();
  std::vector<fs::path> saved;
  if (named) saved = train::Checkpoints(checkpoints, 1).list();
  if (!saved.empty()) {
    text += fmt::format(": has checkpoints, the newest is {}", saved.front().filename().string());
  } else if (bytes > 0) {
    text +=
        fmt::format(": {} per checkpoint, {} free", bytes_text(bytes), bytes_text(space.available));
  }
  print_row("results", text);
  return saved.empty() ? fs::path() : checkpoints;
}

int check(CheckOptions options) {
  train::Config config = train::load_config(options.path, options.all_assignments());
  if (options.ranks == 0) options.ranks = std::max(1, config.run.parallel().stages());
  for (const std::string& warning : config.warnings) print_row("warning", warning);
  std::vector<std::string> checked{"fields"};
  std::vector<std::string> skipped;
  const auto samples = options.no_data ? usual_samples(config) : open_samples(config, checked);
  size_t checkpoint_bytes = 0;
  if (samples) {
    checkpoint_bytes = print_network(config, *samples, options, skipped);
    checked.emplace_back("network");
  } else {
    print_row("network", train::model_name(config.run) + ": not built, since that needs the data");
    skipped.emplace_back("network");
  }
  for (const std::string& warning :
       train::schedule_warnings(config.run, samples ? samples->train : 0)) {
    print_row("warning", warning);
  }
  if (checkpoint_bytes > 0) checked.emplace_back("memory");
  if (options.no_data) {
    skipped.emplace_back("data and model.init_from (--no-data)");
  } else {
    const fs::path checkpoints = check_folder(config, checkpoint_bytes);
    checked.emplace_back("run_dir");
    if (!checkpoints.empty()) {
      check_resume(config, checkpoints, *samples, options.ranks, options.accept_data_change);
      checked.emplace_back("resuming from its newest checkpoint");
    }
    if (!samples->all_read) skipped.emplace_back("all other samples");
  }
  if (options.ranks > 1) skipped.emplace_back("other hosts");
  if (config.run.metrics().port() > 0) skipped.emplace_back("whether metrics.port is free");
  print_row("checked", fmt::format("{}", fmt::join(checked, "; ")));
  print_row("skipped", skipped.empty() ? "nothing" : fmt::format("{}", fmt::join(skipped, "; ")));
  print_message("{}: no problems found\n", options.path);
  return 0;
}

}  // namespace

void add_config_check(ArgumentParser config, Command& chosen) {
  auto options = std::make_shared<CheckOptions>();
  ArgumentParser command =
      config.add_command("check", "Check that this machine can train a configuration");
  command.add_option("CONFIG", options->path, "Configuration file (*.txtpb)").required();
  options->add_to(command);
  command
      .add_option("--ranks", options->ranks,
                  "Number of ranks to plan for (default: parallel.stages)")
      .positive();
  command.add_flag("--accept-data-change", options->accept_data_change,
                   "As in `trireme train`: accept data that differs from the checkpoint's");
  command.add_flag("--no-data", options->no_data,
                   "Open neither the data nor model.init_from, to check a configuration for "
                   "another machine; zoo networks are checked with their usual input");
  command.epilog(R"(Examples:
  trireme config check digits.txtpb --ranks 2
  trireme config check imagenet.txtpb --ranks 8 --no-data

It checks the fields, opens the data and reads all samples of each part up to
64 MiB, otherwise 64 of them, builds the network, compares the planned memory
of all ranks with this machine's, and checks that run_dir can be written to and
that training can resume from its checkpoints, if it has any. It prints what it
has checked and what it has not.
With --no-data, running out of memory on this machine is only a warning.

Exit codes: 0 no problems found, 2 the configuration is invalid or does not fit
this machine or its run_dir, 3 the data is damaged, or is not the data that the
run_dir was trained on.
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return check(*options); }); });
}

}  // namespace trireme::cli
