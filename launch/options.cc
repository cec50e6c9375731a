#include "launch/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
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
#include "trainer/step/agreement.h"

namespace trireme::cli {
namespace {

// The step that networks are compared by: momentum SGD, FP32, labels that say nothing.
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

// A network that comes without data; `batch` where the options say none.
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
  if (found.outputs == 0) {
    throw ConfigError(options.name, "does not tell the size of its input, " +
                                        found.input.to_string() +
                                        "; inspect a configuration that names it (model.onnx)");
  }
  data::SampleSpec samples;
  samples.input = {DType::kF32, found.input, Layout::row_major()};
  samples.target = {DType::kI32, Shape{}, Layout::row_major()};
  samples.classes = static_cast<int>(found.outputs);
  ModelConfig model;
  model.set_onnx(options.name);
  return load_network(model, samples, kUsualBatch, options, assignments, ranks);
}

}  // namespace

std::function<int(comm::Communicator&)> on_one_rank(std::function<int()> work) {
  return [work = std::move(work)](comm::Communicator& communicator) {
    if (communicator.size() > 1) {
      throw comm::AgreedError(
          fmt::format("this command runs on one rank, with all cores, not on {}; "
                      "start it without mpirun or srun",
                      communicator.size()),
          ExitCode::kBadConfig, 0);
    }
    return work();
  };
}

void add_set_option(ArgumentParser app, std::vector<std::string>& assignments) {
  app.add_option("--set", assignments,
                 "Set a field of the configuration, e.g. batch.global=256; may be repeated")
      .metavar("FIELD=VALUE")
      .one_value_each()
      .group(kConfigGroup);
}

std::string refuse_bad_window(const std::string& text) {
  try {
    train::parse_step_window(text);
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

void ConfigOptions::add_to(ArgumentParser app) {
  add_set_option(app, assignments);
  app.add_option("--run-dir", run_dir, "The run's folder: --set run_dir=...")
      .metavar("DIR")
      .group(kConfigGroup);
  app.add_option("--device", device, "Where to compute: --set train.device=...")
      .one_of({"cpu", "cuda", "auto"})
      .group(kConfigGroup);
  app.add_flag("--eager", eager, "Do not record steps on a GPU: --set train.eager=true")
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
  app.add_option("RUN_OR_CHECKPOINT", path, "Folder of a run, or one of its checkpoints")
      .required();
}

void CheckpointOptions::add_best(ArgumentParser app) {
  app.add_flag("--best", best,
               "The run's best checkpoint instead of its newest; it is with train.early_stopping");
}

std::string CheckpointOptions::checkpoint() const {
  return best ? (std::filesystem::path(path) / "checkpoints" / "best").string() : path;
}

void TargetOptions::add_to(ArgumentParser app) {
  app.add_option(
         "CONFIG|ZOO", name,
         "Configuration (*.txtpb), a model (*.onnx), or a network by name: one of `trireme zoo`")
      .required();
  ConfigOptions::add_to(app);
  app.add_option("--batch", batch,
                 "Samples of each rank; unset: as configured, or the network's usual")
      .positive();
  app.add_option("--threads", threads, "Threads of each rank; unset: cores over ranks of the host")
      .positive();
}

Target load_target(const TargetOptions& options, int ranks) {
  std::vector<std::string> assignments = options.all_assignments();
  if (options.threads > 0) assignments.push_back(fmt::format("train.threads={}", options.threads));
  if (is_zoo_name(options.name)) return load_zoo(options, assignments, ranks);
  if (!std::filesystem::exists(train::find_config(options.name))) {
    std::vector<std::string> names = model::zoo_names();
    std::ranges::move(train::installed_configs(), std::back_inserter(names));
    throw ConfigError(options.name, "neither a file nor a network of the zoo" +
                                        did_you_mean(options.name, names));
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
  const model::ZooDefaults defaults = model::zoo_defaults(name);
  data::SampleSpec samples;
  samples.input = {DType::kF32, defaults.input, Layout::row_major()};
  samples.target = {DType::kI32, Shape{}, Layout::row_major()};
  samples.classes = static_cast<int>(defaults.classes);
  return samples;
}

train::Config load_config_together(comm::Communicator& communicator, const std::string& path,
                                   const std::vector<std::string>& assignments) {
  train::Config config;
  comm::together(communicator, [&] { config = train::load_config(path, assignments); });
  train::require_alike(communicator, train::program_facts(config.run));
  return config;
}

}  // namespace trireme::cli
