// Whether a configuration can be trained here, found out without training: all that shows before
// the first step but for what takes reading every sample.
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
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/fingerprint.h"
#include "launch/cli.h"
#include "launch/plan.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/checkpoint/resume_check.h"
#include "trainer/config/class_weights.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"
#include "trainer/config/monitor.h"
#include "trainer/config/run_folder.h"
#include "trainer/run/train.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSamplesRead = 32;  // of each part

struct CheckOptions : ConfigOptions {
  std::string path;
  int ranks = 1;
  bool no_data = false;
  bool accept_data_change = false;
};

// What is known of the samples: from the data or, where they are not to be opened, what a network
// of the zoo is meant for.
struct Samples {
  data::SampleSpec spec;
  bool in_memory = true;
  int64_t train = 0;  // 0: not known
  std::string train_text, eval_text;
  std::unique_ptr<data::Dataset> training = {}, evaluation = {};  // null: not opened
};

void print_row(const char* name, const std::string& text) {
  if (!text.empty()) fmt::print("{:<9} {}\n", name, text);
}

// --- Samples ---

// Reads samples that are spread evenly over the part, the first and the last among them. Returns
// how many were read; where bad records are skipped, some of them may be bad.
std::string read_some(const train::Config& config, const data::Dataset& dataset) {
  const data::SampleSpec& spec = dataset.spec();
  std::vector<std::byte> input(spec.input.bytes()), target(spec.target.bytes());
  const int64_t count = std::min(kSamplesRead, dataset.size());
  int64_t bad = 0;
  std::string first;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = count == 1 ? 0 : i * (dataset.size() - 1) / (count - 1);
    try {
      dataset.read({.index = index}, input.data(), target.data());
    } catch (const DataError& error) {
      if (config.run.data().on_bad_record() == DataConfig::FAIL) throw;
      if (bad++ == 0) first = error.what();
    }
  }
  std::string text = fmt::format("{} of {} samples", count, dataset.size());
  if (bad > 0) text += fmt::format(", {} of them bad; the first: {}", bad, first);
  if (bad == count) throw DataError(dataset.description(), "no good sample among " + text);
  return text;
}

// Puts numbers in the place of balanced class weights.
Samples open_samples(train::Config& config, std::vector<std::string>& checked) {
  auto train = train::open_data(config, data::Part::kTraining);
  auto eval = train::open_data(config, data::Part::kEvaluation, {}, train->columns());
  data::check_alike(*train, *eval);
  train::check_best_metric(config, train->spec().classes);
  train::training_order(config, *train);
  train::balance_class_weights(config, *train);
  checked.push_back("train: " + read_some(config, *train));
  checked.push_back("eval: " + read_some(config, *eval));
  Samples samples{train->spec(), train->in_memory(), train->size(), train->description(),
                  eval->description()};
  samples.training = std::move(train);
  samples.evaluation = std::move(eval);
  return samples;
}

std::optional<Samples> usual_samples(const train::Config& config) {
  if (!config.run.model().has_zoo()) return std::nullopt;
  const data::SampleSpec usual = zoo_samples(config.run.model().zoo().name());
  Samples samples;
  samples.spec = usual;
  samples.train_text = fmt::format("not opened; taken to be {} in {}",
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
  return text + fmt::format(", {} steps an epoch, {} in all", per_epoch, steps);
}

std::string bytes_text(size_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string memory_text(const RankPlan& plan) {
  std::string parts;
  for (const train::RankMemory::Part& part : plan.memory.parts) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.name, bytes_text(part.bytes));
  }
  return fmt::format("{} a rank: {}", bytes_text(plan.memory.total()), parts);
}

// What the network begins with, where that is a file.
std::string initial_text(const train::Config& config, const model::Graph& graph) {
  const ModelConfig& model = config.run.model();
  if (!model.has_init_from()) return "";
  try {
    return train::read_initial_values(model.init_from(), graph).summary;
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

std::string weights_row(const train::Config& config) {
  const std::vector<float> weights = train::class_weights(config.run);
  if (weights.empty()) return "";
  const auto [min, max] = std::ranges::minmax(weights);
  return fmt::format("of {} classes, {:.4g} to {:.4g}", weights.size(), min, max);
}

// Returns the bytes of a checkpoint; 0 where there is no plan.
size_t print_network(const train::Config& config, const Samples& samples,
                     const CheckOptions& options, std::vector<std::string>& skipped) {
  const data::SampleSpec& spec = samples.spec;
  const int ranks = options.ranks;
  train::make_mix(config, spec);
  Target target{.config = config, .samples = spec, .in_memory = samples.in_memory};
  const model::Graph graph = train::build_network(config, spec);
  const train::BatchPlan batch = train::plan_batch(config, ranks);
  std::unique_ptr<RankPlan> plan;
  std::string problem;
  try {
    plan = plan_rank(target, graph, ranks);
  } catch (const Error& error) {
    if (!options.no_data) throw;
    problem = error.what();  // of this machine, which need not be the one to train on
  }
  const std::string size =
      plan ? fmt::format("{} parameters, ",
                         format_count(static_cast<double>(plan->parameters.count())))
           : "";
  print_row("network", fmt::format("{}: {}input {}, {}, {}", train::model_name(config.run), size,
                                   spec.input.shape.to_string(), target_text(spec),
                                   Precision_Name(config.run.train().precision())));
  if (!options.no_data) print_row("begins", initial_text(config, graph));
  print_row("train", samples.train_text);
  print_row("eval", samples.eval_text);
  print_row("weights", weights_row(config));
  print_row("batch", length_text(config, batch, samples, ranks));
  print_row("memory", plan ? memory_text(*plan) : "not planned: " + problem);
  if (!plan) return 0;
  const bool shared = plan->device->kind() == DeviceKind::kCpu;  // by all ranks of this host
  problem = room_problem(config, *plan, shared ? ranks : 1);
  // It is only told where another machine is to train.
  if (!problem.empty() && !options.no_data) throw ConfigError(problem);
  print_row("warning", problem);
  if (plan->room.bytes == 0) skipped.emplace_back("the memory of the GPU");
  return plan->checkpoint_bytes;
}

// --- The run's folder ---

[[noreturn]] void refuse_folder(const train::Config& config, const fs::path& path,
                                const std::string& problem) {
  throw ConfigError(config.where("run_dir"),
                    fmt::format("{} {}; choose another with --run-dir", path.string(), problem));
}

// Whether training would go on from the newest checkpoint, and what would come out differently.
// Throws what training would.
void check_resume(const train::Config& config, const fs::path& checkpoints, const Samples& samples,
                  int ranks, bool accept_data_change) {
  const train::Warn warn = [](const std::string& text) { print_row("warning", text); };
  const auto found = train::newest_checkpoint(checkpoints, warn);
  if (!found) return;
  const model::Graph graph = train::build_network(config, samples.spec);
  const auto changes = train::check_changes(*found, {config, graph, ranks, samples.train});
  const train::RunData data{data::fingerprint_of(*samples.training),
                            data::fingerprint_of(*samples.evaluation)};
  const std::string change = train::data_change(found->state, data);
  if (!change.empty() && !accept_data_change) throw train::data_refusal(*found, change);
  if (!change.empty()) print_row("changed", change);
  for (const std::string& line : changes) print_row("changed", line);
}

// Whether checkpoints of `bytes` each can be written where results are to go. Writes nothing.
// Returns the folder of those that are there; empty: there are none.
fs::path check_folder(const train::Config& config, size_t bytes) {
  const bool named = !config.run.run_dir().empty();
  const fs::path run =
      named ? fs::path(config.run.run_dir()) : train::default_run_folder(config.run);
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
                  fmt::format("has {} free; a checkpoint takes {}", bytes_text(space.available),
                              bytes_text(bytes)));
  }
  std::string text = named ? run.string() : "a new folder in runs/";
  const fs::path checkpoints = train::RunFolder{run}.checkpoints();
  const auto saved = train::Checkpoints(checkpoints, 1).list();
  if (!saved.empty()) {
    text += fmt::format(": holds checkpoints, the newest {}", saved.front().filename().string());
  } else if (bytes > 0) {
    text +=
        fmt::format(": {} a checkpoint, {} free", bytes_text(bytes), bytes_text(space.available));
  }
  print_row("results", text);
  return saved.empty() ? fs::path() : checkpoints;
}

int check(const CheckOptions& options) {
  train::Config config = train::load_config(options.path, options.all_assignments());
  for (const std::string& warning : config.warnings) print_row("warning", warning);
  std::vector<std::string> checked{"fields"};
  std::vector<std::string> skipped;
  const auto samples = options.no_data ? usual_samples(config) : open_samples(config, checked);
  size_t checkpoint_bytes = 0;
  if (samples) {
    checkpoint_bytes = print_network(config, *samples, options, skipped);
    checked.emplace_back("network");
  } else {
    print_row("network", train::model_name(config.run) + ": not built, which takes its data");
    skipped.emplace_back("network");
  }
  if (checkpoint_bytes > 0) checked.emplace_back("memory");
  if (options.no_data) {
    skipped.emplace_back("data and init_from (--no-data)");
  } else {
    const fs::path checkpoints = check_folder(config, checkpoint_bytes);
    checked.emplace_back("run_dir");
    if (!checkpoints.empty()) {
      check_resume(config, checkpoints, *samples, options.ranks, options.accept_data_change);
      checked.emplace_back("whether it may go on from there");
    }
    skipped.emplace_back("all other samples");
  }
  if (options.ranks > 1) skipped.emplace_back("other hosts");
  if (config.run.metrics().port() > 0) skipped.emplace_back("whether metrics.port is free");
  print_row("checked", fmt::format("{}", fmt::join(checked, "; ")));
  print_row("skipped", fmt::format("{}", fmt::join(skipped, "; ")));
  fmt::print("{}: nothing wrong found\n", options.path);
  return 0;
}

}  // namespace

void add_config_check(ArgumentParser config, Command& chosen) {
  auto options = std::make_shared<CheckOptions>();
  ArgumentParser command = config.add_command(
      "check", "Find what would keep it from running here, and tell what would run");
  command.add_option("CONFIG", options->path, "Configuration (*.txtpb)").required();
  options->add_to(command);
  command.add_option("--ranks", options->ranks, "Ranks to plan for; unset: 1").positive();
  command.add_flag("--accept-data-change", options->accept_data_change,
                   "As for `trireme train`: the samples may differ from those of the checkpoint");
  command.add_flag("--no-data", options->no_data,
                   "Do not open the data nor init_from, for a configuration of another machine; a "
                   "network of the zoo gets what it is meant for");
  command.epilog(R"(Examples:
  trireme config check digits.txtpb --ranks 2
  trireme config check imagenet.txtpb --ranks 8 --no-data

It checks fields, opens the data and reads 32 samples of each part, builds the
network, plans memory and compares that of all ranks with this machine's, and
sees whether run_dir can be written to and, where it holds checkpoints, whether
training may go on from them. What it checked and what it did not is
printed. With --no-data, what does not fit this machine is printed only.

Exit codes: 0 nothing wrong was found, 2 the configuration is wrong or does not
fit this machine or its run_dir, 3 its data is damaged, or not what the run_dir
was trained on.
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return check(*options); }); });
}

}  // namespace trireme::cli
