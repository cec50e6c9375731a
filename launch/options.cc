#include "launch/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <utility>

#include "comm/control.h"
#include "core/text.h"
#include "model/graph.h"
#include "trainer/agreement.h"
#include "trainer/trainer.h"

namespace trireme {
namespace {

// The step that networks are compared by: momentum SGD, FP32, labels that say nothing.
constexpr const char* kZooConfig = R"(
model {{ zoo {{ name: "{}" }} }}
data {{ synthetic {{}} }}
batch {{ global: {} }}
train {{ max_steps: 1000 }}
optimizer {{ sgd {{ momentum: 0.9 }} }}
schedule {{ learning_rate: 0.001 }}
)";

bool is_zoo_name(const std::string& name) {
  const std::vector<std::string> names = zoo_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

Target load_zoo(const TargetOptions& options, std::vector<std::string> assignments, int ranks) {
  const ZooDefaults defaults = zoo_defaults(options.name);
  const int64_t batch = options.batch > 0 ? options.batch : defaults.batch;
  Target target;
  target.config = parse_config(fmt::format(kZooConfig, options.name, batch * ranks),
                               "zoo " + options.name, assignments);
  target.samples.input = {DType::kF32, defaults.input, Layout::row_major()};
  target.samples.target = {DType::kI32, Shape{}, Layout::row_major()};
  target.samples.classes = static_cast<int>(defaults.classes);
  return target;
}

}  // namespace

void ConfigOptions::add_to(CLI::App& app) {
  app.add_option("--set", assignments, "Set a field of the configuration, e.g. batch.global=256")
      ->type_name("FIELD=VALUE")
      ->allow_extra_args(false);
  app.add_option("--run-dir", run_dir, "The run's folder: --set run_dir=...");
  app.add_option("--device", device, "cpu, cuda or auto: --set train.device=...")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  app.add_flag("--eager", eager, "Do not record steps on a GPU: --set train.eager=true");
}

std::vector<std::string> ConfigOptions::all_assignments() const {
  std::vector<std::string> all = assignments;
  if (!run_dir.empty()) all.push_back("run_dir=" + run_dir);
  if (!device.empty()) all.push_back("train.device=" + device);
  if (eager) all.push_back("train.eager=true");
  return all;
}

void TargetOptions::add_to(CLI::App& app) {
  app.add_option("CONFIG|ZOO", name,
                 "Configuration (*.txtpb), or a network by name: " +
                     fmt::format("{}", fmt::join(zoo_names(), ", ")))
      ->required();
  ConfigOptions::add_to(app);
  app.add_option("--batch", batch,
                 "Samples of each rank; unset: as configured, or the network's usual")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", threads, "Threads of each rank; unset: cores over ranks of the host")
      ->check(CLI::PositiveNumber);
}

Target load_target(const TargetOptions& options, int ranks) {
  std::vector<std::string> assignments = options.all_assignments();
  if (options.threads > 0) assignments.push_back(fmt::format("train.threads={}", options.threads));
  if (is_zoo_name(options.name)) return load_zoo(options, std::move(assignments), ranks);
  if (!std::filesystem::exists(options.name)) {
    throw ConfigError(options.name, "neither a file nor a network of the zoo" +
                                        did_you_mean(options.name, zoo_names()));
  }
  if (options.batch > 0)
    assignments.push_back(fmt::format("batch.global={}", options.batch * ranks));
  Target target;
  target.config = load_config(options.name, assignments);
  const auto dataset = open_data(target.config, Part::kTraining);
  target.samples = dataset->spec();
  target.in_memory = dataset->in_memory();
  return target;
}

Config load_config_together(Communicator& communicator, const std::string& path,
                            const std::vector<std::string>& assignments) {
  Config config;
  together(communicator, [&] { config = load_config(path, assignments); });
  require_alike(communicator, program_facts(config.run));
  return config;
}

}  // namespace trireme
