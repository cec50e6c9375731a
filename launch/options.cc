#include "launch/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "comm/control.h"
#include "core/text.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "model/graph.h"
#include "model/onnx/onnx.h"
#include "trainer/config/find_config.h"
#include "trainer/config/inputs.h"
#include "trainer/profile/window.h"
#include "trainer/step/rank_consistency.h"

namespace trireme::cli {
namespace {

// The configuration with which networks without one are compiled and timed: SGD with momentum,
// FP32, synthetic data.
constexpr const char* kStepConfig = R"(
model {{ {} }}
data {{ synthetic {{}} }}
batch {{ global: {} }}
train {{ max_steps: 1000 }}
optimizer {{ sgd {{ momentum: 0.9 }} }}
schedule {{ learning_rate: 0.001 }}
)";

bool is_zoo_name(const std::string& name) {
  const std::vector<std::string> names = model::zoo_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Loads a network without a configuration. `batch` is the batch size per rank if --batch is unset.
Target load_network(const ModelConfig& model, const data::SampleSpec& samples, int64_t batch,
                    const TargetOptions& options, const std::vector<std::string>& assignments,
                    int ranks) {
  if (options.batch > 0) batch = options.batch;
  Target target;
  target.config = train::parse_config(
      fmt::format(kStepConfig, model.ShortDebugString(), batch * ranks), options.name, assignments);
  target.samples = samples;
  return target;
}

Target load_zoo(const TargetOptions& options, const std::vector<std::string>& assignments,
                int ranks) {
  ModelConfig model;
  model.mutable_zoo()->set_name(options.name);
  return load_network(model, zoo_samples(options.name), model::zoo_defaults(options.name).batch,
                      options, assignments, ranks);
}

Target load_onnx(const TargetOptions& options, const std::vector<std::string>& assignments,
                 int ranks) {
  constexpr int64_t kUsualBatch = 16;
  const model::OnnxModel found = model::read_onnx(options.name);
  if (found.outputs == 0 || found.input.elements() == 0) {
    throw ConfigError(options.name, "the size of its input " + found.input.to_string() +
                                        " is not fixed; use a configuration with model.onnx");
  }
  data::SampleSpec samples;
  const bool tokens = found.vocab_size > 0;
  samples.input = {tokens ? DType::kI32 : DType::kF32, found.input, Layout::row_major()};
  samples.target = {DType::kI32, found.label_per_token ? found.input : Shape{},
                    Layout::row_major()};
  samples.classes = static_cast<int>(found.outputs);
  if (tokens && !found.label_per_token) samples.vocab_size = found.vocab_size;
  ModelConfig model;
  model.set_onnx(options.name);
  return load_network(model, samples, kUsualBatch, options, assignments, ranks);
}

}  // namespace

std::function<int(comm::Communicator&)> on_one_rank(std::function<int()> work) {
  return [work = std::move(work)](comm::Communicator& communicator) {
    if (communicator.size() > 1) {
      throw comm::AgreedError(
          fmt::format("this command uses all cores from one rank and cannot run on {} ranks; "
                      "start it without mpirun or srun",
                      communicator.size()),
          ExitCode::kBadConfig, 0);
    }
    return work();
  };
}

void add_set_option(ArgumentParser app, std::vector<std::string>& assignments) {
  app.add_option("--set", assignments,
                 "Set a configuration field, for example batch.global=256; may be repeated")
      .metavar("FIELD=VALUE")
      .one_value_each()
      .group(kConfigGroup);
}

std::string step_window_problem(const std::string& text) {
  try {
    train::parse_step_window(text);
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

void ConfigOptions::add_to(ArgumentParser app) {
  add_set_option(app, assignments);
  app.add_option("--run-dir", run_dir, "Folder of the run; short for --set run_dir=DIR")
      .metavar("DIR")
      .group(kConfigGroup);
  app.add_option("--device", device, "Device to compute on; short for --set train.device=...")
      .one_of({"cpu", "cuda", "auto"})
      .group(kConfigGroup);
  app.add_flag("--eager", eager, "Run without CUDA graphs; short for --set train.eager=true")
      .group(kConfigGroup);
}

std::vector<std::string> ConfigOptions::all_assignments() const {
  std::vector<std::string> all = assignments;
  if (!run_dir.empty()) all.push_back("run_dir=" + run_dir);
  if (!device.empty()) all.push_back("train.device=" + device);
  if (eager) all.push_back("train.eager=true");
  return all;
}

void CheckpointOptions::add_path(ArgumentParser app) {
  app.add_option("RUN_OR_CHECKPOINT", path, "Folder of a run or of one of its checkpoints")
      .required();
}

void CheckpointOptions::add_best(ArgumentParser app) {
  app.add_flag("--best", best,
               "Use the run's best checkpoint instead of its newest; with train.early_stopping "
               "the best is the default");
}

std::string CheckpointOptions::checkpoint() const {
  return best ? (std::filesystem::path(path) / "checkpoints" / "best").string() : path;
}

void TargetOptions::add_to(ArgumentParser app) {
  app.add_option(
         "CONFIG|ZOO", name,
         "Configuration file (*.txtpb), ONNX model (*.onnx), or name of a network in `trireme zoo`")
      .required();
  ConfigOptions::add_to(app);
  app.add_option("--batch", batch,
                 "Batch size per rank (default: the configured one, or the network's usual one)")
      .positive();
  app.add_option("--threads", threads,
                 "Threads per rank (default: as configured, or the cores of the host divided by "
                 "its ranks)")
      .positive();
}

Target load_target(const TargetOptions& options, int ranks) {
  std::vector<std::string> assignments = options.all_assignments();
  if (options.threads > 0) assignments.push_back(fmt::format("train.threads={}", options.threads));
  if (is_zoo_name(options.name)) return load_zoo(options, assignments, ranks);
  if (!std::filesystem::exists(train::find_config(options.name))) {
    throw ConfigError(options.name, "is neither a file nor a network of the zoo" +
                                        (options.name.ends_with(".txtpb")
                                             ? train::suggest_config(options.name)
                                             : did_you_mean(options.name, model::zoo_names())));
  }
  if (options.name.ends_with(".onnx")) return load_onnx(options, assignments, ranks);
  if (options.batch > 0)
    assignments.push_back(fmt::format("batch.global={}", options.batch * ranks));
  Target target;
  target.config = train::load_config(options.name, assignments);
  const auto dataset = train::open_data(target.config, data::Part::kTraining);
  target.samples = dataset->spec();
  target.in_memory = dataset->in_memory();
  return target;
}

data::SampleSpec zoo_samples(const std::string& name) {
  const model::ModelInput input = model::zoo_input(name);
  data::SampleSpec samples;
  samples.input = input.input;
  samples.target = input.target;
  samples.classes = static_cast<int>(input.classes);
  samples.vocab_size = input.vocab_size;
  return samples;
}

train::Config load_config_together(comm::Communicator& communicator, const std::string& path,
                                   const std::vector<std::string>& assignments) {
  train::Config config;
  comm::together(communicator, [&] { config = train::load_config(path, assignments); });
  train::require_same_properties(communicator, train::program_properties(config.run));
  return config;
}

}  // namespace trireme::cli
