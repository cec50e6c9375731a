#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "comm/control.h"
#include "core/text.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "trainer/evaluator.h"

namespace trireme {
namespace {

constexpr const char* kConfigName = "config.txtpb";

struct Options : ConfigOptions {
  std::string path;
  bool best = false;
  bool json = false;

  std::string checkpoint() const {
    return best ? (std::filesystem::path(path) / "checkpoints" / "best").string() : path;
  }
};

// The configuration that the run saved: beside the checkpoint or in a folder above it.
std::string find_config(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::exists(path)) {
    throw ConfigError(
        path, "no such run or checkpoint; give a run's folder (runs/...) or a checkpoint in it");
  }
  fs::path folder = fs::weakly_canonical(path);
  for (int level = 0; level < 4 && !folder.empty(); ++level, folder = folder.parent_path()) {
    if (fs::exists(folder / kConfigName)) return (folder / kConfigName).string();
  }
  throw ConfigError(
      path, fmt::format("no {} here or above: this is not the folder of a run", kConfigName));
}

int evaluate(const Options& options, Communicator& communicator) {
  std::string config_path;
  together(communicator, [&] { config_path = find_config(options.checkpoint()); });
  const Config config = load_config_together(communicator, config_path, options.all_assignments());
  const Evaluation result = evaluate_checkpoint(config, communicator, options.checkpoint());
  if (communicator.rank() != 0) return 0;
  if (options.json) {
    const nlohmann::json json = {
        {"model", model_name(config.run)}, {"samples", result.samples},
        {"eval_loss", result.loss},        {"eval_accuracy", result.accuracy},
        {"eval_top5", result.top5},        {"seconds", result.seconds},
        {"bad_records", result.bad.count}};
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{}: ", model_name(config.run));
  if (!config.run.data().csv().regression()) {
    fmt::print("{:.2f}% right, {:.2f}% among the first five, ", 100 * result.accuracy,
               100 * result.top5);
  }
  fmt::print("loss {:.4f}, {} samples in {}\n", result.loss, result.samples,
             format_duration(result.seconds));
  if (result.bad.count > 0) {
    fmt::print("{} bad record(s) left out; the first: {}\n", result.bad.count,
               result.bad.first.front());
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("eval", "Test a trained network");
  command
      .add_option("RUN_OR_CHECKPOINT", options->path, "Folder of a run, or one of its checkpoints")
      ->required();
  options->add_to(command);
  command.add_flag("--best", options->best, "The run's best checkpoint instead of its newest");
  command.add_flag("--json", options->json, "One JSON object");
  command.callback([options, &chosen] {
    chosen.run = [options](Communicator& communicator) { return evaluate(*options, communicator); };
  });
}

}  // namespace trireme
